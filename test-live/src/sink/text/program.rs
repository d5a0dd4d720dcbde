//! The steps that write the fields of one event class as text. Put together once for each class:
//! what is the same in all its events is one piece of text between two values.

use ctf::decode::{FieldError, Fields};
use ctf::model::{Base, Encoding, FieldClass, Integer, Length, Scope, Structure};

use viewer::interpret::debug_info::{EventLocations, Location};

use super::line::{Line, Literal};
use super::style::Style;
use super::values::{Names, Values, escape};

/// The steps by which the fields of a class are written.
#[derive(Debug, Default)]
pub(super) struct Program {
    steps: Vec<Step>,
    /// What stands before the field that is added next.
    next: Lead,
}

/// A field, and what stands before it.
#[derive(Debug)]
struct Step {
    lead: Lead,
    field: Field,
}

/// What stands before a field, or after the last one.
#[derive(Debug)]
struct Lead {
    /// The alignment of the structures that begin here, in bits.
    alignment: u32,
    text: Literal,
}

impl Default for Lead {
    fn default() -> Self {
        Self {
            alignment: 1,
            text: Literal::default(),
        }
    }
}

#[derive(Debug)]
enum Field {
    /// A number without sign, in base 10.
    Unsigned(Integer),
    /// A number with sign, in base 10.
    Signed(Integer),
    /// A number without sign, in base 16.
    Hexadecimal(Integer),
    /// A number with labels.
    Enumeration(Integer, Box<EnumerationText>),
    /// A text that ends with a zero.
    String,
    /// A text in an array of this length.
    Text(Length),
    /// Any other field, with names or without.
    Other(FieldClass, bool),
    /// A field that is not shown.
    Hidden(FieldClass),
    /// What the context `ip` is: one text of it.
    Location(LocationText),
}

/// A text about an address.
#[derive(Debug, Clone, Copy)]
enum LocationText {
    Binary,
    Function,
    Source,
}

impl LocationText {
    fn of(self, location: &Location) -> &str {
        match self {
            Self::Binary => &location.binary,
            Self::Function => &location.function,
            Self::Source => &location.source,
        }
    }
}

/// The texts of the numbers of an enumeration that were shown last, each at the low bits of its
/// number.
#[derive(Debug, Default)]
struct EnumerationText([Option<(u64, Literal)>; 8]);

impl EnumerationText {
    /// Writes a number with its labels.
    #[inline(always)]
    fn write(&mut self, class: &Integer, number: u64, line: &mut Line<'_>, style: &Style) {
        let place = usize::from(number.to_le_bytes()[0]) % self.0.len();
        let Some(known) = self.0.get_mut(place) else {
            return;
        };
        match known {
            Some((shown, text)) if *shown == number => line.literal(text),
            _ => {
                let (_, text) = known.insert((number, Values::enumeration(class, number, style)));
                line.literal(text);
            }
        }
    }
}

impl Program {
    /// The program for `roots`, one after the other. `follows`: something has been written before.
    pub(super) fn new<'s>(
        roots: impl IntoIterator<Item = (Scope, &'s Structure)>,
        names: Names,
        style: &Style,
        follows: bool,
    ) -> Self {
        Self::with_debug_info(roots, names, style, follows, false)
    }

    /// The program for `roots`, as [`new`](Self::new) makes it. `has_location`: events have a last
    /// member in the common context, which says what their context `ip` is.
    pub(super) fn with_debug_info<'s>(
        roots: impl IntoIterator<Item = (Scope, &'s Structure)>,
        names: Names,
        style: &Style,
        mut follows: bool,
        has_location: bool,
    ) -> Self {
        let mut program = Self::default();
        for (scope, root) in roots {
            if root.is_hidden() {
                program.hide(root);
                continue;
            }
            if follows {
                program.literal(", ");
            }
            follows = true;
            if names.scope {
                program.literal(style.name);
                program.literal(scope.name());
                program.literal(style.end);
                program.literal(" = ");
            }
            let named = match scope {
                Scope::Payload => names.payload,
                _ => names.context,
            };
            let has_location = has_location && scope == Scope::CommonContext;
            program.open_structure(root, named, style);
            if has_location {
                program.location(named, style);
            }
            program.literal(" }");
        }
        program
    }

    /// Writes the fields in the bytes of a packet's context.
    pub(super) fn run(
        &mut self,
        fields: Fields<'_>,
        line: &mut Line<'_>,
        style: &Style,
    ) -> Result<(), FieldError> {
        self.run_with(fields, None, line, style)
    }

    /// Writes the fields in the bytes of an event, and what its addresses are.
    pub(super) fn run_with(
        &mut self,
        mut fields: Fields<'_>,
        locations: Option<&EventLocations>,
        line: &mut Line<'_>,
        style: &Style,
    ) -> Result<(), FieldError> {
        let whole = line;
        // No reference to this one leaves the function: its length stays in a register.
        let mut line = whole.borrow();
        for Step { lead, field } in &mut self.steps {
            fields.align(lead.alignment);
            line.literal(&lead.text);
            match field {
                Field::Unsigned(class) => line.decimal(fields.number(class)?),
                Field::Signed(class) => line.signed_decimal(fields.number(class)?.cast_signed()),
                Field::Hexadecimal(class) => line.hexadecimal(fields.number(class)?),
                Field::Enumeration(class, text) => {
                    let number = fields.number(class)?;
                    text.write(class, number, &mut line, style);
                }
                Field::String => escape(&mut line, fields.string()?),
                Field::Text(length) => escape(&mut line, fields.text(length)?),
                Field::Other(class, named) => {
                    let mut lent = line.borrow();
                    fields.visit(class, &mut Values::new(&mut lent, style, *named))?;
                    let pending = lent.pending();
                    line.end_borrow(pending);
                }
                Field::Hidden(class) => fields.skip_field(class)?,
                Field::Location(text) => {
                    let location = locations.and_then(|of| of.ip.as_deref());
                    let text = location.map_or("", |location| text.of(location));
                    escape(&mut line, text.as_bytes());
                }
            }
        }
        line.literal(&self.next.text);
        let pending = line.pending();
        whole.end_borrow(pending);
        Ok(())
    }

    fn push(&mut self, field: Field) {
        let lead = std::mem::take(&mut self.next);
        self.steps.push(Step { lead, field });
    }

    fn align(&mut self, alignment: u32) {
        // Both are powers of two.
        self.next.alignment = self.next.alignment.max(alignment);
    }

    fn structure(&mut self, structure: &Structure, named: bool, style: &Style) {
        self.open_structure(structure, named, style);
        self.literal(" }");
    }

    /// The member `debug_info`, as `babeltrace2` calls it, after others.
    fn location(&mut self, named: bool, style: &Style) {
        self.literal(", ");
        self.name("debug_info", named, style);
        self.literal("{");
        let texts = [
            ("bin", LocationText::Binary),
            ("func", LocationText::Function),
            ("src", LocationText::Source),
        ];
        for (place, (name, text)) in texts.into_iter().enumerate() {
            self.literal(if place == 0 { " " } else { ", " });
            self.name(name, named, style);
            self.text(Field::Location(text), style);
        }
        self.literal(" }");
    }

    fn name(&mut self, name: &str, named: bool, style: &Style) {
        if named {
            self.literal(style.name);
            self.literal(name);
            self.literal(style.end);
            self.literal(" = ");
        }
    }

    /// A structure without its last brace.
    fn open_structure(&mut self, structure: &Structure, named: bool, style: &Style) {
        self.align(structure.alignment);
        self.literal("{");
        let mut first = true;
        for member in &structure.members {
            if member.hidden {
                self.push(Field::Hidden(member.class.clone()));
                continue;
            }
            self.literal(if first { " " } else { ", " });
            first = false;
            self.name(&member.name, named, style);
            self.class(&member.class, named, style);
        }
    }

    fn class(&mut self, class: &FieldClass, named: bool, style: &Style) {
        match class {
            FieldClass::Integer(integer)
                if integer.base == Base::Decimal && integer.labels.is_none() =>
            {
                self.literal(style.number);
                self.push(if integer.signed {
                    Field::Signed(integer.clone())
                } else {
                    Field::Unsigned(integer.clone())
                });
                self.literal(style.end);
            }
            FieldClass::Integer(integer)
                if integer.base == Base::Hexadecimal
                    && integer.labels.is_none()
                    && !integer.signed =>
            {
                self.literal(style.number);
                self.push(Field::Hexadecimal(integer.clone()));
                self.literal(style.end);
            }
            FieldClass::Integer(integer) if integer.labels.is_some() => {
                self.push(Field::Enumeration(integer.clone(), Box::default()));
            }
            FieldClass::String(Encoding::Utf8) => self.text(Field::String, style),
            FieldClass::Text {
                length,
                encoding: Encoding::Utf8,
            } => self.text(Field::Text(length.clone()), style),
            FieldClass::Structure(structure) => self.structure(structure, named, style),
            other => self.push(Field::Other(other.clone(), named)),
        }
    }

    fn text(&mut self, field: Field, style: &Style) {
        self.literal(style.text);
        self.literal("\"");
        self.push(field);
        self.literal("\"");
        self.literal(style.end);
    }

    fn hide(&mut self, root: &Structure) {
        self.align(root.alignment);
        for member in &root.members {
            self.push(Field::Hidden(member.class.clone()));
        }
    }

    fn literal(&mut self, text: &str) {
        self.next.text.push(text.as_bytes());
    }
}
