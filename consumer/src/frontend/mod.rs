//! Where events come from.

pub mod tldrs;
