//! Values that the tests of several sinks need.

use ctf::decode::NumberFormat;
use ctf::model::{Base, Label, Labels, Uuid};

use crate::attach::{StreamInfo, StreamKey, TraceInfo, TraceKey};
use crate::sink::{Ended, Origin};

/// A number without labels.
pub fn plain() -> NumberFormat<'static> {
    NumberFormat {
        bits: 64,
        base: Base::Decimal,
        labels: None,
    }
}

/// Labels, each with one range.
pub fn labels(of: &[(&str, i128, i128)]) -> Labels {
    let label = |(name, low, high): &(&str, i128, i128)| Label {
        name: (*name).into(),
        ranges: vec![(*low, *high)],
    };
    Labels::new(of.iter().map(label).collect())
}

/// A trace and one stream of it.
pub struct TestOrigin {
    /// The trace that the events of the test are of.
    pub trace: TraceInfo,
    /// The stream that the events of the test are of.
    pub stream: StreamInfo,
}

impl TestOrigin {
    /// Makes a trace and a stream of these names.
    #[must_use]
    pub fn new(trace: &str, stream: &str) -> Self {
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

    /// Returns the end of the stream and of its trace.
    #[must_use]
    pub fn ended(&self) -> Ended {
        Ended {
            streams: vec![self.stream.key],
            traces: vec![self.trace.key],
        }
    }

    /// Returns the origin of events of the stream.
    #[must_use]
    pub fn origin(&self) -> Origin<'_> {
        Origin {
            trace: &self.trace,
            stream: &self.stream,
            locations: None,
        }
    }
}
