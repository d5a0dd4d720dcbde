//! Writing the fields of one event.

/// An event that has been begun. Dropped without [`commit`](Self::commit) it leaves no trace and counts as nothing.
#[derive(Debug)]
pub struct EventWriter {
    // Not Send: an event belongs to the ring of its thread.
    _ring: std::marker::PhantomData<*const ()>,
}

impl EventWriter {
    /// Puts bytes as they are. The typed calls below are made of this one.
    #[inline]
    pub fn put_raw(&mut self, bytes: &[u8]) {
        let _ = bytes;
    }

    /// Puts a value of fixed size or a string; strings and byte sequences longer than 65,535 bytes are cut.
    #[inline]
    pub fn put<V: crate::Value + ?Sized>(&mut self, value: &V) {
        value.put(self);
    }

    /// Makes the event visible to readers: from here on a kill cannot take it away. An event that has more bytes than
    /// `begin` was told is counted as lost instead.
    #[inline]
    pub fn commit(self) {}
}
