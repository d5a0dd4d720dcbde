//! What pages of the documentation say: their commands are run, as they are written, on machines of
//! their own.

mod analysis;
mod five_minutes;
mod fleet;
mod kubernetes;
mod manifests;
mod mistakes;
mod ros2;
