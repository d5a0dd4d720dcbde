//! Changes to records that ui.perfetto.dev would otherwise read wrongly or not at all.
//!
//! Read in this order; each module uses only those before it: `copy_json` (tokens that end an
//! import), `event_repair` (members of one event), `owner_numbers` (processes and threads),
//! `layout` (slices that nest, in lanes), `held` (records that wait to be put in order).

mod copy_json;
mod event_repair;
mod held;
mod layout;
mod owner_numbers;

pub use event_repair::round_times;
pub(crate) use held::{HeldRecords, write_separator};
