//! Commands with an agent of their own, which return whether the relay has acknowledged everything:
//! those that send something once, and show the progress, and the one that only samples the clock.

pub mod clock;
pub mod codetracer;
pub mod replay;
