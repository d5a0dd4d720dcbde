//! The order of events that have the same time.

use ctf::model::Uuid;

use crate::attach::{StreamInfo, StreamKey, TraceInfo};

/// Orders streams as `babeltrace2` does, so that equal times give equal output: by the identity of
/// the trace, its name, the stream's class and its number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    uuid: Option<Uuid>,
    trace: String,
    class: u64,
    id: Option<u64>,
    key: StreamKey,
}

impl Rank {
    pub(super) fn new(trace: &TraceInfo, stream: &StreamInfo) -> Self {
        Self {
            uuid: trace.uuid,
            trace: trace.name.clone(),
            class: stream.class,
            id: stream.id,
            key: stream.key,
        }
    }
}
