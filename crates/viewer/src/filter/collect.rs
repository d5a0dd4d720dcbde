//! The visitor of an event's fields that decides the comparisons of a filter. No value is kept:
//! each comparison is made when its field is there.

use std::collections::BTreeSet;

use ctf::decode::{NumberFormat, Visitor};
use ctf::model::{Labels, Scope};

use super::FieldMatcher;
use super::expression::{FieldPath, Leaf, Part, Test};
use super::names::did_you_mean_field;
use crate::near::near_names;
use tef::json_args::{ARGS, visit_object};

/// Largest number of names of arguments that are compared with one that no event has.
const MAX_SEEN_ARGS: usize = 1 << 10;
/// Number of bytes of a name from which it is not compared.
const MAX_SEEN_ARG_BYTES: usize = 256;
/// Largest number of missing arguments that are described.
const MAX_DESCRIBED_ARGS: usize = 32;

/// Tracks where the walk over an event is, as seen from each path that is looked for.
#[derive(Debug)]
pub(crate) struct PathTracker {
    targets: Vec<TrackedPath>,
    /// Structures and arrays that are open.
    depth: usize,
    /// Names of members of JSON arguments, for suggestions.
    seen_args: BTreeSet<String>,
}

/// A path that is looked for.
#[derive(Debug)]
struct TrackedPath {
    path: FieldPath,
    /// The number of the comparison that the path is of.
    leaf: usize,
    /// The number of parts of the path that lead to where the walk is.
    matched: usize,
    /// Whether the scope that is walked is one of the path's.
    active: bool,
    /// Whether an event had the field.
    is_found: bool,
}

impl PathTracker {
    pub(crate) fn new(leaves: &[Leaf]) -> Self {
        let target = |(leaf, of): (usize, &Leaf)| match of {
            Leaf::Property(..) => None,
            Leaf::Field(path, _) | Leaf::Exists(path) => Some(TrackedPath {
                path: path.clone(),
                leaf,
                matched: 0,
                active: false,
                is_found: false,
            }),
        };
        Self {
            targets: leaves.iter().enumerate().filter_map(target).collect(),
            depth: 0,
            seen_args: BTreeSet::new(),
        }
    }

    pub(crate) fn begin_event(&mut self) {
        self.depth = 0;
    }

    /// Whether a path may be in the packet's context.
    pub(crate) fn needs_packet(&self) -> bool {
        self.needs(Scope::PacketContext)
    }

    /// Whether a path may be in the event itself.
    pub(crate) fn needs_event(&self) -> bool {
        self.needs(Scope::Payload) || self.needs(Scope::CommonContext)
    }

    /// Whether a path may lead into the arguments of an event.
    pub(crate) fn needs_args(&self) -> bool {
        self.targets.iter().any(TrackedPath::is_in_args)
    }

    /// Describes each path into the arguments of events that no event had, with similar names that
    /// some had.
    pub(crate) fn describe_missing_args(&self) -> Vec<String> {
        let missing = self.targets.iter();
        // Other parts of the filter may have decided without looking at arguments.
        let has_looked = !self.seen_args.is_empty();
        let missing =
            missing.filter(|target| has_looked && target.is_in_args() && !target.is_found);
        let describe = |target: &TrackedPath| {
            let member = match target.path.parts.get(1) {
                Some(Part::Member(name)) => name.as_str(),
                _ => "",
            };
            let seen = self.seen_args.iter().map(String::as_str);
            let mut near = near_names(member, seen);
            near.retain(|near| *near != member);
            let near = did_you_mean_field(&near);
            format!("no event has a field {}{near}", target.path)
        };
        missing.take(MAX_DESCRIBED_ARGS).map(describe).collect()
    }

    fn needs(&self, scope: Scope) -> bool {
        let mut targets = self.targets.iter();
        targets.any(|target| target.path.place.contains(scope))
    }

    fn add_seen_arg(&mut self, name: &str) {
        let fits = self.seen_args.len() < MAX_SEEN_ARGS && name.len() <= MAX_SEEN_ARG_BYTES;
        if fits && !self.seen_args.contains(name) {
            self.seen_args.insert(name.to_owned());
        }
    }

    /// Records that the walk has entered a scope.
    pub(crate) fn begin_scope(&mut self, scope: Scope) {
        self.depth = 0;
        for target in &mut self.targets {
            target.matched = 0;
            target.active = target.path.place.contains(scope);
        }
    }

    /// Records that the walk has entered a structure or array.
    pub(crate) fn open(&mut self) {
        self.depth += 1;
    }

    /// Records that the walk has left a structure or array.
    pub(crate) fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    /// Whether the walk is at the end of a path.
    pub(crate) fn is_at_target(&self) -> bool {
        let depth = self.depth;
        let is_at =
            |target: &TrackedPath| target.matched == depth && target.path.parts.len() == depth;
        depth > 0 && self.targets.iter().any(is_at)
    }

    /// Whether the walk is at the first part of a path, and the path leads into it.
    pub(crate) fn is_at_first_part(&self) -> bool {
        let is_at = |target: &TrackedPath| target.active && target.matched == 1;
        self.depth == 1 && self.targets.iter().any(is_at)
    }

    /// Records that the walk has reached the part that `is` recognizes, within `depth` open
    /// structures.
    #[inline]
    pub(crate) fn step(&mut self, is: impl Fn(&Part) -> bool) {
        let before = self.depth.saturating_sub(1);
        for target in &mut self.targets {
            // What was matched at this depth or deeper is of a part that the walk has left.
            target.matched = target.matched.min(before);
            let next = target.path.parts.get(before);
            if target.active && target.matched == before && next.is_some_and(&is) {
                target.matched = self.depth;
            }
        }
    }
}

impl TrackedPath {
    /// Whether the path leads into a field `args`.
    fn is_in_args(&self) -> bool {
        matches!(&*self.path.parts, [Part::Member(name), _, ..] if name == ARGS)
    }
}

impl FieldMatcher<'_> {
    /// Whether the walk is at `args` of the payload, which is JSON, and a path leads into it.
    fn is_at_json_args(&self) -> bool {
        let is_at =
            |target: &TrackedPath| target.active && target.matched == 1 && target.is_in_args();
        self.has_json_args
            && self.is_in_payload
            && self.collect.depth == 1
            && self.collect.targets.iter().any(is_at)
    }

    /// Compares the value at which the walk is.
    #[inline]
    fn value(&mut self, compare: impl Fn(&Test) -> bool) {
        let depth = self.collect.depth;
        for target in &mut self.collect.targets {
            if depth == 0 || target.matched != depth || target.path.parts.len() != depth {
                continue;
            }
            target.is_found = true;
            let decided = match self.leaves.get(target.leaf) {
                Some(Leaf::Field(_, test)) => compare(test),
                // Only `exists` remains, for which any value will do.
                _ => true,
            };
            if let Some(known) = self.known.get_mut(target.leaf) {
                *known = Some(decided);
            }
        }
    }
}

impl Visitor for FieldMatcher<'_> {
    fn begin_scope(&mut self, scope: Scope) {
        self.is_in_payload = scope == Scope::Payload;
        self.collect.begin_scope(scope);
    }

    fn begin_structure(&mut self) {
        // A structure has no value to compare, but `exists` finds it.
        self.value(|_| false);
        self.collect.open();
    }

    #[inline]
    fn member(&mut self, name: &str) {
        if self.is_in_args && self.collect.depth == 2 {
            self.collect.add_seen_arg(name);
        }
        self.collect
            .step(|part| matches!(part, Part::Member(known) if known == name));
    }

    fn end_structure(&mut self) {
        self.collect.close();
    }

    fn begin_array(&mut self, _length: u64) {
        self.begin_structure();
    }

    #[inline]
    fn element(&mut self, index: u64) {
        self.collect.step(|part| *part == Part::Element(index));
    }

    fn end_array(&mut self) {
        self.end_structure();
    }

    #[inline]
    fn unsigned(&mut self, value: u64, format: NumberFormat<'_>) {
        self.value(|test| test.number(i128::from(value), format.labels));
    }

    #[inline]
    fn signed(&mut self, value: i64, format: NumberFormat<'_>) {
        self.value(|test| test.number(i128::from(value), format.labels));
    }

    fn float(&mut self, value: f64, _bits: u8) {
        self.value(|test| test.float(value));
    }

    fn boolean(&mut self, value: bool) {
        self.value(|test| test.boolean(value));
    }

    fn bit_array(&mut self, value: u64, _bits: u8, flags: Option<&Labels>) {
        self.value(|test| match flags {
            Some(flags) => test.enumeration(i128::from(value), flags.of_bits(value)),
            None => test.integer(i128::from(value)),
        });
    }

    #[inline]
    fn text(&mut self, bytes: &[u8]) {
        if self.is_at_json_args()
            && let Ok(json) = std::str::from_utf8(bytes)
        {
            self.is_in_args = true;
            visit_object(json, self);
            self.is_in_args = false;
        }
        // Compared as a whole, arguments are their text.
        self.value(|test| test.text(bytes));
    }

    fn blob(&mut self, _bytes: &[u8], _media_type: &str) {
        self.value(|_| false);
    }
}
