//! Values that the tests of several sinks need.

use ctf::decode::NumberFormat;
use ctf::model::{Base, Label, Labels, Uuid};

use super::Origin;
use crate::attach::{StreamInfo, StreamKey, TraceInfo, TraceKey};

/// A number without labels.
pub(crate) fn plain() -> NumberFormat<'static> {
    NumberFormat {
        bits: 64,
        base: Base::Decimal,
        labels: None,
    }
}

/// Labels, each with one range.
pub(crate) fn labels(of: &[(&str, i128, i128)]) -> Labels {
    let label = |(name, low, high): &(&str, i128, i128)| Label {
        name: (*name).into(),
        ranges: vec![(*low, *high)],
    };
    Labels::new(of.iter().map(label).collect())
}

/// A trace and one stream of it.
pub(crate) struct TestOrigin {
    pub(crate) trace: TraceInfo,
    pub(crate) stream: StreamInfo,
}

impl TestOrigin {
    pub(crate) fn new(trace: &str, stream: &str) -> Self {
        Self {
            trace: TraceInfo {
                key: TraceKey::fresh(),
                name: trace.to_owned(),
                uuid: Some(Uuid([0xAB; 16])),
            },
            stream: StreamInfo {
                key: StreamKey::fresh(),
                name: stream.to_owned(),
                class: 3,
                id: Some(4),
            },
        }
    }

    pub(crate) fn origin(&self) -> Origin<'_> {
        Origin {
            trace: &self.trace,
            stream: &self.stream,
        }
    }
}
