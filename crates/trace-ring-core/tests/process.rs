//! Whole processes: each test runs this test program again as a producer (`scenarios`), and reads
//! what it leaves.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::panic,
    reason = "a test stops at what it did not expect; its files are small"
)]

#[path = "process/calls.rs"]
mod calls;
#[path = "process/death.rs"]
mod death;
#[path = "process/fixture.rs"]
mod fixture;
#[path = "process/fork.rs"]
mod fork;
#[path = "process/producer.rs"]
mod producer;
#[path = "process/reader.rs"]
mod reader;
#[path = "process/runtime.rs"]
mod runtime;
#[path = "process/scenarios.rs"]
mod scenarios;
#[path = "process/threads.rs"]
mod threads;
