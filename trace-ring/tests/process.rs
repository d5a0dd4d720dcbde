//! Whole processes: each test runs this test program again as a producer (`scenarios`), and reads what it leaves.

#[path = "process/death.rs"]
mod death;
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
