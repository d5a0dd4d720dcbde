//! The records of a stream -> records that every version of CodeTracer opens.
//!
//! The replay engine stops at records that break its rules, and readers refuse a whole file for one
//! record that they cannot parse. [`ReplayFilter`] leaves such records out, and counts them:
//!
//! - The newest step is held back until the next one, with all that follows it, since a
//!   `DropLastStep` may come. It removes the step and its values. No `DropLastStep` is passed on:
//!   the engine cannot handle it.
//! - A `Return` without call, a record of a step before the first step, an item of an unknown place
//!   and the like are left out (`state`), kinds and values that published types cannot parse as
//!   well (`check`), unless there is another form of the same that they can (`forms`).
//! - Definitions are never left out, since others refer to them by position.
//! - When records were lost on the way, missing definitions are filled in, and calls of which the
//!   return was lost are returned from. Returns of lost calls are left out.

mod check;
mod forms;
mod state;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;

use self::check::Payload;
use self::state::{Effect, ReplayState};
use crate::output_form::OutputForm;
use crate::record::{Definition, Json, Record};

/// Bytes that are held back with a step. When there are more, the step is certain: a `DropLastStep`
/// is left out.
const MAX_HELD_BYTES: usize = 64 << 20;
/// Definitions that are filled in after a gap. A producer that says there are more is not believed.
const MAX_FILLED: u64 = 1 << 20;
/// Largest path of a step, unless it is defined: the engine allocates a table up to it.
const MAX_PATH_ID: u64 = 5_000_000;
/// The kind of a message of the recorder in the log.
const RECORDER_MESSAGE: u8 = 12;

/// The numbers of records so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecordCounts {
    /// Records that came, with those left out.
    pub records: u64,
    /// Records that were lost on the way.
    pub lost: u64,
    /// Records left out since their kind is not one of the published types.
    pub unknown: u64,
    /// Records left out or changed since published types cannot parse their payload.
    pub unreadable: u64,
    /// Records left out since they break a rule of the replay.
    pub misplaced: u64,
    /// Definitions that were filled in for lost ones.
    pub filled: u64,
}

impl RecordCounts {
    /// The number of records that were left out or changed.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.unknown + self.unreadable + self.misplaced
    }
}

impl fmt::Display for RecordCounts {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            unknown,
            unreadable,
            misplaced,
            ..
        } = self;
        write!(to, "{} records left out", self.left_out())?;
        if self.left_out() > 0 {
            write!(
                to,
                " ({unknown} of unknown kind, {unreadable} that readers cannot parse, \
                 {misplaced} that a replay cannot handle)"
            )?;
        }
        write!(to, ", {} lost", self.lost)?;
        if self.filled > 0 {
            write!(to, ", {} definitions filled in", self.filled)?;
        }
        Ok(())
    }
}

/// Passes on the records of a recording that a replay can handle, in one form of files.
#[derive(Debug)]
pub struct ReplayFilter {
    form: OutputForm,
    state: ReplayState,
    held: Held,
    certain: Vec<u8>,
    /// Paths that the records in `certain` and before define.
    paths: Vec<String>,
    definitions: [u64; 4],
    counts: RecordCounts,
    /// The number of records since the begin of the recording, with those lost.
    next_record: u64,
    /// Records of the packet that came before.
    repeated: u64,
}

/// The newest step and what came after it.
#[derive(Debug, Default)]
struct Held {
    has_step: bool,
    text: Vec<u8>,
    items: Vec<HeldItem>,
    /// Whether there is more than the step, its values and definitions.
    has_more: bool,
}

#[derive(Debug)]
struct HeldItem {
    /// Where its text ends.
    end: usize,
    effect: Effect,
    /// Whether the item vanishes with the step.
    is_of_step: bool,
}

impl ReplayFilter {
    /// A filter at the begin of a recording.
    #[must_use]
    pub fn new(form: OutputForm) -> Self {
        Self {
            form,
            state: ReplayState::default(),
            held: Held::default(),
            certain: Vec::new(),
            paths: Vec::new(),
            definitions: [0; 4],
            counts: RecordCounts::default(),
            next_record: 0,
            repeated: 0,
        }
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> RecordCounts {
        self.counts
    }

    /// The records that are certain, in the form of the output. The caller removes them.
    pub fn certain(&mut self) -> &mut Vec<u8> {
        &mut self.certain
    }

    /// The records that would be certain if no `DropLastStep` came. Empty as long as there is
    /// nothing but a step, its values and definitions.
    #[must_use]
    pub fn uncertain(&self) -> &[u8] {
        if self.held.has_more {
            &self.held.text
        } else {
            &[]
        }
    }

    /// The paths since the last call, in order.
    pub fn take_paths(&mut self) -> Vec<String> {
        std::mem::take(&mut self.paths)
    }

    /// Begins a packet: `first_record` is the number of records before its first one since the
    /// recording began, `depth` that of the calls that are open there.
    pub fn begin_packet(&mut self, first_record: u64, depth: u64) {
        self.repeated = self.next_record.saturating_sub(first_record);
        let Some(lost) = first_record
            .checked_sub(self.next_record)
            .filter(|lost| *lost > 0)
        else {
            return;
        };
        // A `DropLastStep` may be among the lost records, which nobody can know.
        self.release();
        self.counts.lost = self.counts.lost.saturating_add(lost);
        self.next_record = first_record;
        for _ in 0..self.state.set_depth(depth) {
            let none = Record::Return(none_value());
            self.form.write(&none, &mut self.certain);
        }
    }

    /// Passes the next record on, holds it back, or leaves it out. `position` is that of a
    /// definition among those of its kind, if the packet says it.
    pub fn push(&mut self, record: &Record<'_>, position: Option<u64>) {
        if let Some(repeated) = self.repeated.checked_sub(1) {
            self.repeated = repeated;
            return;
        }
        self.next_record = self.next_record.saturating_add(1);
        self.counts.records += 1;
        if let Some(definition) = record.definition() {
            return self.define(definition, record, position);
        }
        let converted = forms::convert(record);
        let record = converted.as_ref().unwrap_or(record);
        match record {
            Record::DropLastStep => self.drop_step(),
            Record::Step { path_id, .. } => {
                let is_defined = *path_id < self.defined(Definition::Path);
                if !is_defined && *path_id > MAX_PATH_ID {
                    self.counts.misplaced += 1;
                    return;
                }
                self.release();
                self.state.save();
                self.held.has_step = true;
                self.add(record, Effect::Step);
            }
            Record::Value { value, .. } if check::is_value(value) => self.add(record, Effect::None),
            Record::Call { args, .. } if check::are_arguments(args) => {
                self.add(record, Effect::Call);
            }
            Record::Call { function_id, args } => {
                // Without it, a return would leave another function.
                self.counts.unreadable += 1;
                let args = check::valid_arguments(args);
                let function_id = *function_id;
                self.add(&Record::Call { function_id, args }, Effect::Call);
            }
            Record::Return(value) if check::is_value(value) => self.add(record, Effect::Return),
            Record::Return(_) => {
                // Not left out: the replay would stay in the function.
                self.counts.unreadable += 1;
                self.add(&Record::Return(none_value()), Effect::Return);
            }
            Record::Log { kind, .. } if *kind <= check::MAX_LOG_KIND => {
                self.add(record, Effect::None);
            }
            Record::Other { kind, payload } => self.push_other(record, kind, payload),
            _ => self.counts.unreadable += 1,
        }
    }

    /// Counts the records that are missing at the end of a recording of so many.
    pub fn end(&mut self, records: u64) {
        let lost = records.saturating_sub(self.next_record);
        self.counts.lost = self.counts.lost.saturating_add(lost);
        self.next_record = self.next_record.saturating_add(lost);
    }

    /// Counts a record that cannot be decoded.
    pub fn count_unreadable(&mut self) {
        self.next_record = self.next_record.saturating_add(1);
        self.counts.records += 1;
        self.counts.unreadable += 1;
    }

    /// Passes on all that is held back, and at last a message in the log if something was lost or
    /// left out. No record may follow.
    pub fn finish(&mut self) {
        self.release();
        if self.counts.left_out() + self.counts.lost + self.counts.filled == 0 {
            return;
        }
        let message = Record::Log {
            kind: RECORDER_MESSAGE,
            metadata: Cow::Borrowed("test-live"),
            content: Cow::Owned(self.counts.to_string()),
        };
        self.form.write(&message, &mut self.certain);
    }

    fn push_other(&mut self, record: &Record<'_>, kind: &str, payload: &Json<'_>) {
        if let Some(definition) = Definition::of_kind(kind) {
            self.counts.unreadable += 1;
            let position = self.defined(definition);
            let name = format!("<invalid {} {position}>", word(definition));
            return self.add_definition(definition, &placeholder(definition, name));
        }
        match check::payload(kind, payload) {
            Ok(Payload::Free) => self.add(record, Effect::None),
            Ok(Payload::AfterStep) => self.add(record, Effect::AfterStep),
            Ok(Payload::VariableCell) => self.add(record, Effect::InCall),
            Ok(Payload::Compound(place)) => self.add(record, Effect::DefinePlace(place)),
            Ok(Payload::CompoundItem(place)) => self.add(record, Effect::UsePlace(place)),
            Ok(Payload::NoSequence) => self.counts.misplaced += 1,
            Err(true) => self.counts.unreadable += 1,
            Err(false) => self.counts.unknown += 1,
        }
    }

    fn define(&mut self, definition: Definition, record: &Record<'_>, position: Option<u64>) {
        let defined = self.defined(definition);
        let missing = position.map_or(0, |position| position.saturating_sub(defined));
        if self.counts.lost > 0 && (1..=MAX_FILLED).contains(&missing) {
            for position in defined..defined + missing {
                self.counts.filled += 1;
                let name = format!("<lost {} {position}>", word(definition));
                self.add_definition(definition, &placeholder(definition, name));
            }
        }
        match record {
            Record::Type(json) if !check::is_type(json) => {
                self.counts.unreadable += 1;
                let name = format!("<invalid type {}>", self.defined(definition));
                self.add_definition(definition, &placeholder(definition, name));
            }
            record => self.add_definition(definition, record),
        }
    }

    fn add_definition(&mut self, definition: Definition, record: &Record<'_>) {
        if let Some(count) = self.definitions.get_mut(definition as usize) {
            *count += 1;
        }
        // The caller writes them to `trace_paths.json` too.
        if let Record::Path(path) = record {
            self.paths.push(path.clone().into_owned());
        }
        self.add(record, Effect::None);
    }

    fn defined(&self, definition: Definition) -> u64 {
        let count = self.definitions.get(definition as usize);
        count.copied().unwrap_or_default()
    }

    fn add(&mut self, record: &Record<'_>, effect: Effect) {
        if !self.state.apply(effect) {
            self.counts.misplaced += 1;
            return;
        }
        if !self.held.has_step {
            return self.form.write(record, &mut self.certain);
        }
        self.form.write(record, &mut self.held.text);
        // A `DropLastStep` removes these two kinds of records and no others.
        let is_of_step = matches!(record, Record::Step { .. } | Record::Value { .. });
        self.held.items.push(HeldItem {
            end: self.held.text.len(),
            effect,
            is_of_step,
        });
        // A step with its values alone may still be dropped; viewers wait for what comes after it.
        self.held.has_more |= !is_of_step && record.definition().is_none();
        let items = self.held.items.len() * size_of::<HeldItem>();
        if self.held.text.len() + items > MAX_HELD_BYTES {
            // The step is certain from here on: memory has a limit, and a recording may have one
            // step only.
            self.release();
        }
    }

    /// Passes on what is held back.
    fn release(&mut self) {
        let held = &mut self.held;
        self.certain.append(&mut held.text);
        held.items.clear();
        (held.has_step, held.has_more) = (false, false);
    }

    /// Removes the newest step and its values. What else came after it stays, as far as it can
    /// without the step.
    fn drop_step(&mut self) {
        if !self.held.has_step {
            self.counts.misplaced += 1;
            return;
        }
        // To the state before the step; what follows is applied again without it.
        self.state.restore();
        let mut begin = 0;
        for item in std::mem::take(&mut self.held.items) {
            let text = self.held.text.get(begin..item.end).unwrap_or_default();
            begin = item.end;
            if item.is_of_step {
                continue;
            }
            if self.state.apply(item.effect) {
                self.certain.extend_from_slice(text);
            } else {
                self.counts.misplaced += 1;
            }
        }
        self.held.text.clear();
        (self.held.has_step, self.held.has_more) = (false, false);
    }
}

/// The value of a `Return` that says nothing.
fn none_value() -> Json<'static> {
    Json::parse(r#"{"kind":"None","type_id":0}"#).expect("it is valid")
}

fn word(definition: Definition) -> &'static str {
    match definition {
        Definition::Path => "path",
        Definition::Function => "function",
        Definition::Type => "type",
        Definition::Variable => "variable",
    }
}

/// A definition in place of one that is missing.
fn placeholder(definition: Definition, name: String) -> Record<'static> {
    match definition {
        Definition::Path => Record::Path(name.into()),
        Definition::Function => Record::Function {
            path_id: 0,
            line: 0,
            name: name.into(),
        },
        Definition::Type => {
            // 16: raw.
            let text =
                format!(r#"{{"kind":16,"lang_type":"{name}","specific_info":{{"kind":"None"}}}}"#);
            Record::Type(Json::parse(&text).map_or_else(|_| none_value(), Json::into_owned))
        }
        Definition::Variable => Record::Variable {
            name: name.into(),
            is_legacy: false,
        },
    }
}
