//! Names in a filter that no trace declares: an event class or a field with a typing error.

use std::borrow::Cow;
use std::collections::BTreeSet;

use ctf::metadata::{EventClass, Trace};
use ctf::model::{FieldClass, Scope, Structure};

use super::expression::{FieldPath, Leaf, Literal, Part, Property, Test};
use super::token::is_name;
use crate::interpret::event_name::{ClassNames, is_phase};
use crate::near::{did_you_mean, near_names};
use tef::json_args::{ARGS, has_json_args};

/// Largest number of declared names that are compared with one that is not declared.
const MAX_KNOWN_NAMES: usize = 1 << 14;

/// Largest number of undeclared names that are described. Each is compared with all declared ones.
const MAX_DESCRIBED_NAMES: usize = 32;

/// Largest number of names of events that are compared with one that none has.
const MAX_SEEN_NAMES: usize = 1 << 10;
/// Number of bytes of a name from which it is not compared.
const MAX_SEEN_NAME_BYTES: usize = 256;

/// The names of events that no class declares, as far as a filter looks for names.
#[derive(Debug, Default)]
pub(crate) struct SeenNames {
    /// The comparisons of names, and whether an event had such a name.
    tests: Vec<(Test, bool)>,
    seen: BTreeSet<String>,
}

impl SeenNames {
    /// The names for which the comparisons of a filter look.
    pub(crate) fn new(leaves: &[Leaf]) -> Self {
        let test = |leaf: &Leaf| match leaf {
            Leaf::Property(Property::Name, test) => Some((test.clone(), false)),
            _ => None,
        };
        Self {
            tests: leaves.iter().filter_map(test).collect(),
            seen: BTreeSet::new(),
        }
    }

    /// Whether the filter looks for names.
    pub(crate) fn is_used(&self) -> bool {
        !self.tests.is_empty()
    }

    /// Takes an event of a class into account. `own`: its own name, if it has one.
    #[inline]
    pub(crate) fn add(&mut self, names: &ClassNames, class: Option<&str>, own: Option<&str>) {
        let Some(name) = own else { return };
        let mut is_any_missing = false;
        for (test, is_found) in &mut self.tests {
            *is_found = *is_found || test.names_event(names, class, own);
            is_any_missing |= !*is_found;
        }
        for name in [Some(name), names.shown_class(class)].into_iter().flatten() {
            let fits = self.seen.len() < MAX_SEEN_NAMES && name.len() <= MAX_SEEN_NAME_BYTES;
            if is_any_missing && fits && !self.seen.contains(name) {
                self.seen.insert(name.to_owned());
            }
        }
    }

    /// Describes each name that no event had, with similar names that some had. Nothing, if no
    /// event had a name besides that of its class: then the declarations say what is missing.
    pub(crate) fn describe_missing(&self) -> Vec<String> {
        let missing = self.tests.iter().filter(|(_, is_found)| !is_found);
        let missing = missing.filter(|_| !self.seen.is_empty());
        missing
            .take(MAX_DESCRIBED_NAMES)
            .map(|(test, _)| describe_name(test, &self.seen))
            .collect()
    }
}

/// Describes a name that no event has, with similar ones.
fn describe_name(test: &Test, known: &BTreeSet<String>) -> String {
    let Literal::Text(pattern) = &test.with else {
        return String::new();
    };
    let near = near_names(&pattern.text(), known.iter().map(String::as_str));
    format!("no event is named {pattern}{}", did_you_mean(&near))
}

/// The names in a filter that no trace has declared so far.
#[derive(Debug, Default)]
pub struct UndeclaredNames {
    missing: Vec<Leaf>,
    event_names: BTreeSet<String>,
    field_names: BTreeSet<String>,
}

impl UndeclaredNames {
    /// All names of a filter.
    pub(crate) fn new(leaves: &[Leaf]) -> Self {
        let is_name = |leaf: &&Leaf| !matches!(leaf, Leaf::Property(property, _) if *property != Property::Name);
        Self {
            missing: leaves.iter().filter(is_name).cloned().collect(),
            ..Self::default()
        }
    }

    /// Takes into account what a trace declares.
    pub fn add_declarations(&mut self, trace: &Trace) {
        if self.missing.is_empty() {
            return;
        }
        // Before names are collected: once all are declared, no suggestion will be needed.
        self.missing.retain(|leaf| !is_declared(leaf, trace));
        if self.missing.is_empty() {
            return;
        }
        for stream in trace.streams() {
            for class in stream.events() {
                add_name(&mut self.event_names, class.name().unwrap_or_default());
                let names = ClassNames::of(class, stream.events());
                add_name(
                    &mut self.event_names,
                    names.span.as_deref().unwrap_or_default(),
                );
                for structure in [class.context(), class.payload()].into_iter().flatten() {
                    add_fields(&mut self.field_names, structure);
                }
            }
            let of_stream = [stream.packet_context(), stream.event_context()];
            for structure in of_stream.into_iter().flatten() {
                add_fields(&mut self.field_names, structure);
            }
        }
    }

    /// Forgets the names, and returns a description of each.
    pub fn take_descriptions(&mut self) -> Vec<String> {
        std::mem::take(self).describe()
    }

    /// A description of each name, with similar names that are declared.
    pub fn describe(&self) -> Vec<String> {
        let describe = |leaf: &Leaf| match leaf {
            Leaf::Property(_, test) => describe_name(test, &self.event_names),
            Leaf::Field(path, _) | Leaf::Exists(path) => {
                let last = path.parts.iter().rev().find_map(|part| match part {
                    Part::Member(name) => Some(name.as_str()),
                    Part::Element(_) => None,
                });
                let known = || self.field_names.iter().map(String::as_str);
                let last = last.unwrap_or_default();
                let mut near = near_names(last, known());
                near.retain(|near| *near != last || path.parts.len() > 1);
                // What is within `args` is not declared: then the mistake is in the first part.
                if let (true, [Part::Member(first), _, ..]) = (near.is_empty(), &*path.parts) {
                    near = near_names(first, known());
                    near.retain(|near| near != first);
                }
                format!("no event has a field {path}{}", did_you_mean_field(&near))
            }
        };
        let described = self.missing.iter().take(MAX_DESCRIBED_NAMES);
        let mut descriptions: Vec<String> = described.map(describe).collect();
        // A filter may compare the same name several times.
        descriptions.dedup();
        let others = self.missing.len().saturating_sub(MAX_DESCRIBED_NAMES);
        if others > 0 {
            descriptions.push(format!("{others} other names are not declared either"));
        }
        descriptions
    }
}

fn add_name(names: &mut BTreeSet<String>, name: &str) {
    if names.len() < MAX_KNOWN_NAMES && !names.contains(name) {
        names.insert(name.to_owned());
    }
}

fn add_fields(names: &mut BTreeSet<String>, structure: &Structure) {
    for member in structure.members.iter().filter(|member| !member.hidden) {
        add_name(names, &member.name);
        if let FieldClass::Structure(inner) = &member.class {
            add_fields(names, inner);
        }
    }
}

fn is_declared(leaf: &Leaf, trace: &Trace) -> bool {
    trace.streams().any(|stream| match leaf {
        Leaf::Property(_, test) => stream
            .events()
            .iter()
            .any(|class| names_class(test, class, stream.events())),
        Leaf::Field(path, _) | Leaf::Exists(path) => {
            let is_in = |scope: Scope, structure: Option<&Structure>| {
                path.place.contains(scope)
                    && structure.is_some_and(|structure| has_member(structure, &path.parts))
            };
            // The arguments of events that were sent in Trace Event Format are JSON, which declares
            // nothing.
            let is_in_args = |class: &EventClass| {
                let args = [Part::Member(ARGS.to_owned())];
                path.parts.starts_with(&args)
                    && path.place.contains(Scope::Payload)
                    && has_json_args(class.name())
            };
            is_in(Scope::PacketContext, stream.packet_context())
                || is_in(Scope::CommonContext, stream.event_context())
                || stream.events().iter().any(|class| {
                    is_in(Scope::SpecificContext, class.context())
                        || is_in(Scope::Payload, class.payload())
                        || is_in_args(class)
                })
        }
    })
}

/// Whether events of a class may have the name that is the text of a comparison, whichever kind of
/// comparison it is.
fn names_class(test: &Test, class: &EventClass, classes: &[EventClass]) -> bool {
    let Literal::Text(pattern) = &test.with else {
        return true;
    };
    let names = ClassNames::of(class, classes);
    let is_of_phase = is_phase(&pattern.literal_begin());
    // Names of their own are known only when the events are read.
    (names.has_own_names() && !is_of_phase) || test.names_event(&names, class.name(), None)
}

fn has_member(structure: &Structure, parts: &[Part]) -> bool {
    let Some((Part::Member(name), rest)) = parts.split_first() else {
        return false;
    };
    let mut members = structure.members.iter();
    members.any(|member| *member.name == **name && has_part(&member.class, rest))
}

fn has_part(class: &FieldClass, parts: &[Part]) -> bool {
    if parts.is_empty() {
        return true;
    }
    match class {
        FieldClass::Structure(structure) => has_member(structure, parts),
        FieldClass::Array { element, .. } => match parts.split_first() {
            Some((Part::Element(_), rest)) => has_part(element, rest),
            _ => false,
        },
        FieldClass::Optional { class, .. } => has_part(class, parts),
        FieldClass::Variant(variant) => {
            let mut options = variant.options.iter();
            options.any(|option| has_part(&option.class, parts))
        }
        _ => false,
    }
}

/// The name of a field as it is written in a filter: between backquotes, if it would be something
/// else without.
fn quoted(name: &str) -> Cow<'_, str> {
    let is_word = !matches!(name, "" | "ctx" | "true" | "false");
    let begins_number = name.starts_with(|char: char| char.is_ascii_digit());
    match is_word && !begins_number && name.chars().all(is_name) {
        true => name.into(),
        false => format!("`{name}`").into(),
    }
}

/// Writes suggestions as [`did_you_mean`] does, each field as it is written in a filter.
pub(crate) fn did_you_mean_field(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| quoted(name)).collect();
    let names: Vec<&str> = quoted.iter().map(|name| &**name).collect();
    did_you_mean(&names)
}

impl std::fmt::Display for FieldPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (place, part) in self.parts.iter().enumerate() {
            match part {
                Part::Member(name) if place == 0 => f.write_str(&quoted(name))?,
                Part::Member(name) => write!(f, ".{}", quoted(name))?,
                Part::Element(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ctf::Metadata;

    use super::super::Filter;
    use super::did_you_mean_field;

    const METADATA: &str = "/* CTF 1.8 */
        typealias integer { size = 32; align = 8; } := number;
        trace { major = 1; minor = 8; byte_order = le; };
        stream { event.header := struct { number id; }; event.context := struct { number _vpid; }; };
        event { id = 1; name = \"sched_switch\"; fields := struct {
            number _prev_tid; struct { number _depth; } _inner; number _list[3]; string _comm; }; };
        event { id = 2; name = \"tef:begin\"; fields := struct { string _args; }; };";

    fn undeclared(filter: &str) -> Vec<String> {
        let metadata = Metadata::read(METADATA.as_bytes()).unwrap();
        let mut names = Filter::parse(filter).unwrap().undeclared_names();
        names.add_declarations(metadata.trace());
        names.take_descriptions()
    }

    #[test]
    fn a_filter_with_declared_names_only_has_no_undeclared_names() {
        for filter in [
            "prev_tid > 0 && vpid == 1",
            "$name == \"sched_*\" || $name != \"sched_switch\"",
            "inner.depth == 1 && list[2] == 1",
            "exists(args.n) && $payload.args.n[2].deep > 2 && args == \"*n*\"",
            "$ctx.vpid == 1 && $payload.prev_tid == 1 && $stream == \"x\" && $loglevel < 3",
        ] {
            assert_eq!(undeclared(filter), [""; 0], "{filter}");
        }
    }

    #[test]
    fn a_filter_with_many_undeclared_names_has_some_of_them_described() {
        let names: Vec<_> = (0..1000).map(|number| format!("x{number} == 1")).collect();
        let descriptions = undeclared(&names.join(" || "));
        assert_eq!(descriptions.len(), 33);
        assert_eq!(
            descriptions.last().unwrap(),
            "968 other names are not declared either"
        );
    }

    #[test]
    fn undeclared_names_of_a_filter_are_described_with_similar_ones() {
        for (filter, want) in [
            (
                "prev_tod > 0",
                "no event has a field prev_tod; did you mean prev_tid?",
            ),
            (
                "inner.dpth > 0",
                "no event has a field inner.dpth; did you mean depth?",
            ),
            ("$payload.vpid > 0", "no event has a field vpid"),
            ("comm.n > 2", "no event has a field comm.n"),
            (
                "argz.n > 2",
                "no event has a field argz.n; did you mean args?",
            ),
            ("ctx.args.n > 2", "no event has a field args.n"),
            (
                "$name == \"sched_swich\"",
                "no event is named \"sched_swich\"; did you mean sched_switch?",
            ),
            ("!($name == \"irq*\")", "no event is named \"irq*\""),
            (
                r#"$name == "a\*\"\\?\n""#,
                r#"no event is named "a\*\"\\?\n""#,
            ),
            ("`odd name` == 1", "no event has a field `odd name`"),
            ("a.`b.c`[1].`2` == 1", "no event has a field a.`b.c`[1].`2`"),
        ] {
            assert_eq!(undeclared(filter), [want], "{filter}");
        }
        let suggested = did_you_mean_field(&["odd name", "ctx", "a1"]);
        assert_eq!(suggested, "; did you mean `odd name` or `ctx` or a1?");
    }
}
