//! Blocks whose commit object was deleted while they waited to be read: by then, parts of the
//! session have their packets.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::Mutex;

use super::error::CatalogError;
use super::open::{OpenedSession, open_session};
use crate::name::SessionKey;
use crate::session::BlockUse;
use crate::store::Store;

/// The sessions that have been opened again, to find their blocks.
#[derive(Debug, Default)]
pub struct MovedBlocks(Mutex<HashMap<SessionKey, Arc<OpenedSession>>>);

/// A block, and the object that has it now.
pub type MovedBlock = (Arc<str>, BlockUse);

impl MovedBlocks {
    /// Finds the packets of `used`, which were in the object `gone`: those that are still in some
    /// object, in their order.
    ///
    /// # Errors
    /// If the session cannot be opened again.
    pub async fn find(
        &self,
        store: &dyn Store,
        session: SessionKey,
        gone: &str,
        used: &BlockUse,
    ) -> Result<Vec<MovedBlock>, CatalogError> {
        // Locked until the session is open: others that miss the same objects wait for that.
        let mut sessions = self.0.lock().await;
        if let Some(known) = sessions.get(&session) {
            let found = locate(known, used);
            if !found.is_empty() && found.iter().all(|(object, _)| **object != *gone) {
                return Ok(found);
            }
        }
        let opened = Arc::new(open_session(store, session).await?);
        let found = locate(&opened, used);
        sessions.insert(session, opened);
        Ok(found)
    }
}

/// The blocks of a session that have packets of `used`, without the others of these blocks.
fn locate(opened: &OpenedSession, used: &BlockUse) -> Vec<MovedBlock> {
    let number = used.block.record.stream;
    let streams = opened.view.traces.iter().flat_map(|trace| &trace.streams);
    let own = streams.filter(|stream| stream.number == number);
    let found = own.flat_map(|stream| &stream.blocks).filter_map(|block| {
        let (begin, end) = (block.begin.max(used.begin), block.end.min(used.end));
        let object = opened.objects.get(block.block.object)?;
        let block = BlockUse {
            block: block.block.clone(),
            begin,
            end,
        };
        (begin < end).then(|| (Arc::clone(object), block))
    });
    let mut found: Vec<MovedBlock> = found.collect();
    // Those of one chunk are in order, and the chunks need not be.
    found.sort_by_key(|(_, used)| used.begin);
    found
}
