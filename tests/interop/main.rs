//! Interoperation with LTTng as the producer, Babeltrace as the viewer, and `lttng-relayd` as the
//! relay.

mod babeltrace_live;
mod captures;
mod consumer_ctf_traces;
mod consumer_replay;
mod consumer_tldrs;
mod ctf_directory;
mod ctf_traces;
mod ctf_writer;
mod debug_info;
mod follow;
mod late_metadata;
mod packet_order;
mod producer_2_15;
mod same_tree;
mod seek;
mod spans;
mod tef;
mod test_live_attach;
mod test_live_run;
mod test_live_text;
mod test_live_top;
mod threads;
mod unreadable_metadata;
mod unusual_metadata;
