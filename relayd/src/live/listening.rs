//! A viewer's ears at what it follows. They are there while the viewer listens, and no longer.

use std::sync::Arc;

use viewer_proto::server::Change;

use crate::registry::news::{Ear, Inbox};
use crate::registry::published::{Published, PublishedMetadata};
use crate::registry::session::Session;

/// Something that changes.
pub(super) trait Audible {
    /// From now on, this one hears.
    fn listen(&self, ear: &Arc<Ear>);
    /// From now on, it does not.
    fn deafen(&self, ear: &Arc<Ear>);
}

/// A thing that a viewer follows, and its ear there if it listens.
#[derive(Debug)]
pub(super) struct Heard<T: Audible> {
    thing: Arc<T>,
    about: Change,
    inbox: Arc<Inbox>,
    ear: Option<Arc<Ear>>,
}

impl<T: Audible> Heard<T> {
    /// Nobody listens yet.
    pub(super) fn new(thing: Arc<T>, about: Change, inbox: &Arc<Inbox>) -> Self {
        Self {
            thing,
            about,
            inbox: Arc::clone(inbox),
            ear: None,
        }
    }

    /// Listens, or does not.
    pub(super) fn listen(&mut self, on: bool) {
        if let Some(ear) = self.ear.take() {
            self.thing.deafen(&ear);
        }
        if on {
            let ear = Ear::new(&self.inbox, self.about);
            self.thing.listen(&ear);
            self.ear = Some(ear);
        }
    }
}

impl<T: Audible> std::ops::Deref for Heard<T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        &self.thing
    }
}

impl<T: Audible> Drop for Heard<T> {
    fn drop(&mut self) {
        self.listen(false);
    }
}

macro_rules! audible {
    ($( $thing:ty ),*) => {$(
        impl Audible for $thing {
            fn listen(&self, ear: &Arc<Ear>) {
                self.listen(ear);
            }

            fn deafen(&self, ear: &Arc<Ear>) {
                self.deafen(ear);
            }
        }
    )*};
}

audible!(Published, PublishedMetadata, Session);
