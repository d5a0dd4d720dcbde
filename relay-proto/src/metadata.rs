//! Metadata is sent on the control connection, so that it never arrives later than an index that
//! needs it.

use wire::{StreamId, wire_struct};

wire_struct! {
    /// Metadata text follows, all that is left of the command. The only command without a reply.
    /// (`SEND_METADATA`, `struct lttcomm_relayd_metadata_payload`)
    ///
    /// The text is to be appended to the metadata file as it is. It may be CTF metadata packets
    /// (LTTng up to 2.13) or plain text, cut anywhere.
    #[derive(Copy)]
    pub SendMetadata [12 bytes] {
        /// Id of the metadata stream.
        stream: StreamId,
        /// Zero bytes that the relay appends after the text, in bytes.
        padding: u32,
    }

    /// Discards the metadata written so far. All of it will be sent again. (`RESET_METADATA`,
    /// `struct lttcomm_relayd_reset_metadata`, 2.8)
    #[derive(Copy)]
    pub ResetMetadata [16 bytes] {
        /// Id of the metadata stream.
        stream: StreamId,
        /// Version of the metadata that follows: 1, 2, ...
        version: u64,
    }
}
