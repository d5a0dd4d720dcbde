//! `GET_METADATA`: metadata in pieces of any size. The boundaries between pieces have no meaning.

use wire::{wire_enum, wire_struct};

wire_struct! {
    /// Answers `GET_METADATA`; `len` bytes follow. (`struct lttng_viewer_metadata_packet`)
    #[derive(Copy)]
    pub MetadataHead [12 bytes] {
        /// Bytes that follow. 0 unless `status` is `Ok`.
        len: u64,
        /// Result of the command.
        status: MetadataStatus,
    }
}

wire_enum! {
    /// (`enum lttng_viewer_get_metadata_return_code`)
    pub MetadataStatus {
        /// New metadata follows. There may be more: ask again.
        Ok = 1,
        /// The viewer has all metadata that there is now.
        NoNew = 2,
        /// The stream is unknown, or will have no more metadata.
        Failed = 3,
    }
}
