//! Clocks of several hosts: samples of one beside the other, with times of day that are shifted and
//! set, slow links, killed programs and relays of LTTng; without samples, packets in kernel traces.

mod align;
mod align_watchers;
mod kernel_trace;
mod links;
mod lttng;
mod messages;
mod network;
mod real_packets;
mod samples;
mod shifted_clock;
mod steps;
