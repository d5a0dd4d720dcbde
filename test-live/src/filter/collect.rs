//! The visitor of an event's fields that decides the comparisons of a filter. No value is kept:
//! each comparison is made when its field is there.

use ctf::decode::{NumberFormat, Visitor};
use ctf::model::{Labels, Scope};

use super::FieldMatcher;
use super::expression::{FieldPath, Leaf, Part, Test};

/// Tracks where the walk over an event is, as seen from each path that is looked for.
#[derive(Debug)]
pub(crate) struct PathTracker {
    targets: Vec<TrackedPath>,
    /// Structures and arrays that are open.
    depth: usize,
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
            }),
        };
        Self {
            targets: leaves.iter().enumerate().filter_map(target).collect(),
            depth: 0,
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

    fn needs(&self, scope: Scope) -> bool {
        let mut targets = self.targets.iter();
        targets.any(|target| target.path.place.contains(scope))
    }

    /// The walk has entered a scope.
    pub(crate) fn begin_scope(&mut self, scope: Scope) {
        self.depth = 0;
        for target in &mut self.targets {
            target.matched = 0;
            target.active = target.path.place.contains(scope);
        }
    }

    /// The walk has entered a structure or array.
    pub(crate) fn open(&mut self) {
        self.depth += 1;
    }

    /// The walk has left a structure or array.
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

    /// The walk has reached the part that `is` recognizes, within `depth` open structures.
    #[inline]
    pub(crate) fn step(&mut self, is: impl Fn(&Part) -> bool) {
        let before = self.depth.saturating_sub(1);
        for target in &mut self.targets {
            target.matched = target.matched.min(before);
            let next = target.path.parts.get(before);
            if target.active && target.matched == before && next.is_some_and(&is) {
                target.matched = self.depth;
            }
        }
    }
}

impl FieldMatcher<'_> {
    /// Compares the value at which the walk is.
    #[inline]
    fn value(&mut self, compare: impl Fn(&Test) -> bool) {
        for target in &self.collect.targets {
            let depth = self.collect.depth;
            if depth == 0 || target.matched != depth || target.path.parts.len() != depth {
                continue;
            }
            let decided = match self.leaves.get(target.leaf) {
                Some(Leaf::Field(_, test)) => compare(test),
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
        self.collect.begin_scope(scope);
    }

    fn begin_structure(&mut self) {
        self.value(|_| false);
        self.collect.open();
    }

    #[inline]
    fn member(&mut self, name: &str) {
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
        self.value(|test| test.text(bytes));
    }

    fn blob(&mut self, _bytes: &[u8], _media_type: &str) {
        self.value(|_| false);
    }
}
