//! The expression of a filter: comparisons, and how they are joined.

use std::cmp::Ordering;

use ctf::model::{Labels, LogLevel, Scope};

use super::glob::Pattern;
use crate::interpret::event_name::{ClassNames, is_phase};

/// Comparisons joined by logic. A number is the place of a comparison in the list of them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expression {
    Leaf(usize),
    Not(Box<Self>),
    All(Vec<Self>),
    Any(Vec<Self>),
}

impl Expression {
    /// Whether the expression is true. Absent if that depends on leaves that are not known.
    pub(crate) fn evaluate(&self, known: &[Option<bool>]) -> Option<bool> {
        match self {
            Self::Leaf(place) => known.get(*place).copied().flatten(),
            Self::Not(inner) => inner.evaluate(known).map(|holds| !holds),
            Self::All(parts) => joined(parts, known, false),
            Self::Any(parts) => joined(parts, known, true),
        }
    }
}

/// Returns `decisive` if one of `parts` is that; none if one is not known; else the opposite.
fn joined(parts: &[Expression], known: &[Option<bool>], decisive: bool) -> Option<bool> {
    let mut whole = Some(!decisive);
    for part in parts {
        match part.evaluate(known) {
            Some(holds) if holds == decisive => return Some(decisive),
            Some(_) => {}
            None => whole = None,
        }
    }
    whole
}

/// A comparison in an expression.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Leaf {
    /// A comparison of a property.
    Property(Property, Test),
    /// A comparison of a field.
    Field(FieldPath, Test),
    /// Whether there is such a field.
    Exists(FieldPath),
}

/// A property of an event besides its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Property {
    Name,
    Trace,
    Stream,
    Time,
    LogLevel,
}

/// The scopes and the path in which a field is looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldPath {
    pub(crate) place: ScopeSet,
    pub(crate) parts: Vec<Part>,
}

/// The scopes in which a field is looked for. Where several have it, the last one walked counts:
/// the payload before the event's own context, that before the common one, that before the
/// packet's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScopeSet {
    Anywhere,
    Contexts,
    Packet,
    Payload,
}

impl ScopeSet {
    pub(crate) fn contains(self, scope: Scope) -> bool {
        match self {
            Self::Anywhere => true,
            Self::Contexts => scope != Scope::Payload,
            Self::Packet => scope == Scope::PacketContext,
            Self::Payload => scope == Scope::Payload,
        }
    }
}

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Member(String),
    Element(u64),
}

/// A value and how it is compared.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Test {
    pub(crate) how: Comparison,
    pub(crate) with: Literal,
}

/// A kind of comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A literal value in an expression.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Literal {
    Integer(i128),
    Float(f64),
    Text(Pattern),
    Boolean(bool),
}

impl Leaf {
    /// Whether a comparison is true for all events of a class. Absent if that depends on the event.
    pub(crate) fn of_class(
        &self,
        name: Option<&str>,
        names: &ClassNames,
        log_level: Option<u8>,
        trace: &str,
    ) -> Option<bool> {
        let Self::Property(property, test) = self else {
            return None;
        };
        match property {
            // Each event of such a class has another name.
            Property::Name if names.has_own_names() => None,
            Property::Name => Some(test.name(names, name, None)),
            Property::Trace => Some(test.text(trace.as_bytes())),
            Property::LogLevel => Some(log_level.is_some_and(|level| test.log_level(level))),
            Property::Stream | Property::Time => None,
        }
    }
}

impl Comparison {
    fn holds(self, order: Option<Ordering>) -> bool {
        match self {
            Self::Equal => order == Some(Ordering::Equal),
            // NaN has no order, and is unequal to every number.
            Self::Unequal => order != Some(Ordering::Equal),
            Self::Less => order == Some(Ordering::Less),
            Self::LessOrEqual => order.is_some_and(Ordering::is_le),
            Self::Greater => order == Some(Ordering::Greater),
            Self::GreaterOrEqual => order.is_some_and(Ordering::is_ge),
        }
    }

    /// Returns the comparison that says the same with both sides exchanged.
    pub(crate) fn mirrored(self) -> Self {
        match self {
            Self::Equal | Self::Unequal => self,
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
        }
    }

    /// Whether the comparison asks for an order.
    pub(crate) fn is_order(self) -> bool {
        !matches!(self, Self::Equal | Self::Unequal)
    }

    fn equality(self, equal: bool) -> bool {
        match self {
            Self::Equal => equal,
            Self::Unequal => !equal,
            _ => false,
        }
    }
}

/// Values of another kind than the literal compare as false, whatever the comparison.
impl Test {
    pub(crate) fn integer(&self, value: i128) -> bool {
        match &self.with {
            Literal::Integer(with) => self.how.holds(Some(value.cmp(with))),
            Literal::Float(with) => self.how.holds(integer_to_float(value, *with)),
            Literal::Boolean(with) => self.how.equality((value != 0) == *with),
            Literal::Text(_) => false,
        }
    }

    pub(crate) fn float(&self, value: f64) -> bool {
        match &self.with {
            Literal::Integer(with) => {
                let order = integer_to_float(*with, value);
                self.how.holds(order.map(Ordering::reverse))
            }
            Literal::Float(with) => self.how.holds(value.partial_cmp(with)),
            Literal::Text(_) | Literal::Boolean(_) => false,
        }
    }

    pub(crate) fn text(&self, value: &[u8]) -> bool {
        match &self.with {
            Literal::Text(Pattern::Plain(with)) => self.how.holds(Some(value.cmp(with))),
            Literal::Text(pattern) => self.how.equality(pattern.matches(value)),
            _ => false,
        }
    }

    /// Whether the text of the comparison is a name of an event of a class, whichever kind of
    /// comparison it is.
    pub(crate) fn names_event(
        &self,
        names: &ClassNames,
        class: Option<&str>,
        own: Option<&str>,
    ) -> bool {
        let Literal::Text(pattern) = &self.with else {
            return false;
        };
        let is_of_phase = is_phase(&pattern.literal_begin());
        names.any(class, own, is_of_phase, |name| {
            pattern.matches(name.as_bytes())
        })
    }

    /// An event is each of its names, as an enumeration is each of its labels.
    pub(crate) fn name(&self, names: &ClassNames, class: Option<&str>, own: Option<&str>) -> bool {
        match self.how {
            // Without a name there is nothing to compare, as with a field that is not there.
            Comparison::Unequal if class.is_none() && own.is_none() => false,
            Comparison::Equal | Comparison::Unequal => {
                self.how.equality(self.names_event(names, class, own))
            }
            _ => names.any(class, own, false, |name| self.text(name.as_bytes())),
        }
    }

    pub(crate) fn boolean(&self, value: bool) -> bool {
        match &self.with {
            Literal::Boolean(with) => self.how.equality(value == *with),
            Literal::Integer(with) => self.how.equality(i128::from(value) == *with),
            _ => false,
        }
    }

    /// An enumeration is its number and each of its labels.
    pub(crate) fn enumeration<'l>(
        &self,
        value: i128,
        mut labels: impl Iterator<Item = &'l str>,
    ) -> bool {
        match &self.with {
            Literal::Integer(_) | Literal::Float(_) => self.integer(value),
            Literal::Text(pattern) => {
                let equal = labels.any(|label| pattern.matches(label.as_bytes()));
                self.how.equality(equal)
            }
            Literal::Boolean(with) => {
                let mut known = None;
                for label in labels {
                    known = known.or(match label {
                        "true" => Some(true),
                        "false" => Some(false),
                        _ => None,
                    });
                }
                self.how.equality(known.unwrap_or(value != 0) == *with)
            }
        }
    }

    pub(crate) fn number(&self, value: i128, labels: Option<&Labels>) -> bool {
        match labels {
            Some(labels) => self.enumeration(value, labels.of(value)),
            None => self.integer(value),
        }
    }

    /// A log level is its number and its name, with or without `TRACE_` in front.
    pub(crate) fn log_level(&self, level: u8) -> bool {
        let name = LogLevel(level).name();
        let short = name.and_then(|name| name.strip_prefix("TRACE_"));
        self.enumeration(i128::from(level), name.into_iter().chain(short))
    }
}

/// Compares exactly: a double cannot hold each number of 64 bits.
fn integer_to_float(integer: i128, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    // This is more than any number of 64 bits, and well within 128.
    const BEYOND: f64 = 1e30;
    if float.abs() > BEYOND {
        return 0.0.partial_cmp(&float);
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "well within 128 bits, and the fraction follows"
    )]
    let whole = float.trunc() as i128;
    Some(
        integer
            .cmp(&whole)
            .then_with(|| 0.0.partial_cmp(&float.fract()).unwrap_or(Ordering::Equal)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(how: Comparison, with: Literal) -> Test {
        Test { how, with }
    }

    #[test]
    fn filter_comparisons_of_integers_and_floats_are_exact() {
        let large = (1i128 << 53) + 1;
        let near = 9_007_199_254_740_992.0;
        assert!(test(Comparison::Greater, Literal::Float(near)).integer(large));
        assert!(test(Comparison::Less, Literal::Integer(large)).float(near));
        assert!(test(Comparison::Less, Literal::Float(2.5)).integer(2));
        assert!(test(Comparison::Greater, Literal::Float(-2.5)).integer(-2));
        assert!(test(Comparison::Less, Literal::Float(f64::INFINITY)).integer(i128::MAX));
        assert!(test(Comparison::Equal, Literal::Integer(3)).float(3.0));
    }

    #[test]
    fn nan_is_unequal_to_every_number() {
        for with in [Literal::Integer(0), Literal::Float(f64::NAN)] {
            assert!(test(Comparison::Unequal, with.clone()).float(f64::NAN));
            assert!(!test(Comparison::Equal, with.clone()).float(f64::NAN));
            assert!(!test(Comparison::Less, with).float(f64::NAN));
        }
    }

    #[test]
    fn an_expression_with_unknown_operands_is_undecided_if_they_matter() {
        let known = [Some(true), Some(false), None];
        let leaf = Expression::Leaf;
        for (expression, want) in [
            (Expression::All(vec![leaf(0), leaf(2)]), None),
            (Expression::All(vec![leaf(2), leaf(1)]), Some(false)),
            (Expression::Any(vec![leaf(2), leaf(0)]), Some(true)),
            (Expression::Any(vec![leaf(1), leaf(2)]), None),
            (Expression::Not(Box::new(leaf(2))), None),
            (Expression::Not(Box::new(leaf(1))), Some(true)),
        ] {
            assert_eq!(expression.evaluate(&known), want, "{expression:?}");
        }
    }
}
