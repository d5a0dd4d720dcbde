//! Events that own their values, for programs that keep them or do not want to write a
//! [`Visitor`](crate::decode::Visitor): [`Event`], [`Value`].

mod collect;
mod event;
mod value;

pub(crate) use collect::{Collector, NameTable};
pub use event::{Event, StreamOrigin};
pub use value::{Enumeration, Structure, Value};
