//! The sources of events. Each frontend is one module: it opens sessions at a
//! [`SessionOpener`](crate::queue::SessionOpener) and knows no relay.

pub mod codetracer;
pub mod replay;
pub mod ring;
pub mod tldrs;
