//! The event classes of the process, as written to `meta`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::format::{EventClass, MAX_CLASSES, META_HEADER_SIZE};
use crate::memory::Mapping;
use crate::process_directory::ProcessDirectory;

/// The classes registered up to now.
#[derive(Debug)]
pub(crate) struct ClassTable {
    /// All of `meta`; records are appended after the header. The header's words are in a mapping of
    /// their own.
    meta: Mapping,
    /// Bytes of records that are in `meta`.
    committed: usize,
    /// Id of each class, by the bytes of its record with the id 0.
    ids: HashMap<Vec<u8>, u32>,
}

impl ClassTable {
    /// An empty table that writes to `meta`.
    pub(crate) fn new(meta: Mapping) -> Self {
        Self {
            meta,
            committed: 0,
            ids: HashMap::new(),
        }
    }

    /// Returns the id of a class that is given with the id 0. A new one is in `meta` before this
    /// returns.
    ///
    /// `None` when there are too many classes or `meta` cannot grow.
    pub(crate) fn register(
        &mut self,
        mut class: EventClass,
        directory: &ProcessDirectory,
        committed: &AtomicU64,
    ) -> Option<u32> {
        let key = class.encode();
        if let Some(id) = self.ids.get(&key) {
            return Some(*id);
        }
        class.id = u32::try_from(self.ids.len()).ok()? + 1;
        if class.id > MAX_CLASSES {
            return None;
        }
        let record = class.encode();
        let end = META_HEADER_SIZE + self.committed + record.len();
        if end > self.meta.size() {
            self.meta = directory.grow_meta(end.next_power_of_two()).ok()?;
        }
        self.meta.write(META_HEADER_SIZE + self.committed, &record);
        self.committed += record.len();
        // Release: a reader that sees the length sees the record.
        committed.store((self.committed as u64).to_le(), Ordering::Release);
        self.ids.insert(key, class.id);
        Some(class.id)
    }
}
