//! Metadata, in pieces of any size: only what they make together counts.

use wire::{wire_enum, wire_struct};

wire_struct! {
    /// Answers `GET_METADATA`; `len` bytes follow. (`struct lttng_viewer_metadata_packet`)
    #[derive(Copy)]
    pub MetadataHead [12 bytes] {
        /// Bytes that follow. 0 unless there are new ones.
        len: u64,
        /// How it ended.
        status: MetadataStatus,
    }
}

wire_enum! {
    /// (`enum lttng_viewer_get_metadata_return_code`)
    pub MetadataStatus {
        /// Here is some. Ask again until there is none.
        Ok = 1,
        /// This viewer has all that there is now.
        NoNew = 2,
        /// There is no such stream, or there will be no more of its metadata.
        Failed = 3,
    }
}
