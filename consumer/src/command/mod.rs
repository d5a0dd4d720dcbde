//! Commands that send something once, with an agent of their own: each starts the agent and a
//! frontend, shows the progress, and returns whether the relay has acknowledged everything.

pub mod codetracer;
pub mod replay;
