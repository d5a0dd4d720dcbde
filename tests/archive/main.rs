//! The archive with whole programs: what a relay archives is what it has recorded, whatever happens
//! to the relay and to the store; and the archive in stores of other projects, of which those that
//! do not keep what an archive relies on are refused.

mod agent;
mod ceph;
mod check;
mod chunks;
mod drain;
mod fleet;
mod fleet_viewers;
mod kill;
mod long;
mod lttng;
mod packets;
mod reading;
mod recordings;
mod restart;
mod retention;
mod sequential;
mod servers;
mod system;
mod unavailable;
mod unindexed;
