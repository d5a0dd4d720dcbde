//! Streams, as they are announced to a viewer, and `GET_NEW_STREAMS`.

use wire::{FixedText, StreamId, TraceId, wire_enum, wire_struct};

wire_struct! {
    /// A stream. (`struct lttng_viewer_stream`)
    pub StreamRecord [4371 bytes] {
        /// Id of the stream, assigned by the relay.
        stream: StreamId,
        /// Id of the trace, which all its streams and its metadata stream share.
        trace: TraceId,
        /// Not 0 for a metadata stream.
        is_metadata: u32,
        /// Directory of the stream, relative to its session. Informative.
        path: FixedText<4096>,
        /// Channel and instance, or `metadata`.
        channel: FixedText<255>,
    }

    /// Answers `GET_NEW_STREAMS`; as many [`StreamRecord`]s follow.
    /// (`struct lttng_viewer_new_streams_response`)
    #[derive(Copy)]
    pub NewStreams [8 bytes] {
        /// Result of the command.
        status: NewStreamsStatus,
        /// Number of streams that follow.
        count: u32,
    }
}

wire_enum! {
    /// (`enum lttng_viewer_new_streams_return_code`)
    pub NewStreamsStatus {
        /// The new streams follow, if there are any.
        Ok = 1,
        /// There are no new streams now.
        NoNew = 2,
        /// The session is unknown, or the viewer is not attached to it.
        Failed = 3,
        /// The session is over, and will have no more streams.
        HungUp = 4,
    }
}
