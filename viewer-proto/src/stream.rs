//! Streams, as a viewer is told of them.

use wire::{FixedText, StreamId, TraceId, wire_enum, wire_struct};

wire_struct! {
    /// A stream. (`struct lttng_viewer_stream`)
    pub StreamRecord [4371 bytes] {
        /// Its number at the relay.
        stream: StreamId,
        /// The trace that it belongs to, with the metadata stream that describes it.
        trace: TraceId,
        /// Not 0: this is that metadata stream.
        is_metadata: u32,
        /// Directory of the stream below its session. For people only.
        path: FixedText<4096>,
        /// Channel and instance, or `metadata`.
        channel: FixedText<255>,
    }

    /// Answers `GET_NEW_STREAMS`; as many [`StreamRecord`]s follow.
    /// (`struct lttng_viewer_new_streams_response`)
    #[derive(Copy)]
    pub NewStreams [8 bytes] {
        /// How it ended.
        status: NewStreamsStatus,
        /// Streams that follow.
        count: u32,
    }
}

wire_enum! {
    /// (`enum lttng_viewer_new_streams_return_code`)
    pub NewStreamsStatus {
        /// These are new, if any.
        Ok = 1,
        /// None now.
        NoNew = 2,
        /// There is no such session, or this viewer is not attached to it.
        Failed = 3,
        /// The session has ended; no more will come.
        HungUp = 4,
    }
}
