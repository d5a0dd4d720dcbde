//! The steps that write the fields of one event class as text. Put together once for each class: what is the
//! same in all its events is one piece of text between two values.

use ctf::decode::{FieldError, Fields};
use ctf::model::{Base, Encoding, FieldClass, Integer, Length, Scope, Structure};

use super::line::{Line, Literal};
use super::number;
use super::style::Style;
use super::values::{Names, Values, escape_bytes, is_plain};

/// The steps by which the fields of a class are written.
#[derive(Debug, Default)]
pub(super) struct Program(Vec<Step>);

#[derive(Debug)]
enum Step {
    /// Write this text.
    Literal(Literal),
    /// Write nothing: a structure begins here, which is aligned to this many bits.
    Align(u32),
    /// A number without sign, in base 10.
    Unsigned(Integer),
    /// A number with sign, in base 10.
    Signed(Integer),
    /// A number without sign, in base 16.
    Hexadecimal(Integer),
    /// A text that ends with a zero.
    String,
    /// A text in an array of this length.
    Text(Length),
    /// Any other field, with names or without.
    Other(FieldClass, bool),
    /// Write nothing: the field is not shown.
    Hidden(FieldClass),
}

impl Program {
    /// The program for `roots`, one after the other. `follows`: something has been written before.
    pub(super) fn new<'s>(
        roots: impl IntoIterator<Item = (Scope, &'s Structure)>,
        names: Names,
        style: &Style,
        mut follows: bool,
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
            program.structure(root, named, style);
        }
        program
    }

    /// Writes the fields in the bytes of an event.
    pub(super) fn run(
        &self,
        mut fields: Fields<'_>,
        line: &mut Line<'_>,
        style: &Style,
    ) -> Result<(), FieldError> {
        let whole = line;
        let mut line = whole.borrow();
        for step in &self.0 {
            match step {
                Step::Literal(text) => line.literal(text),
                Step::Unsigned(class) => line.decimal(fields.number(class)?),
                Step::Signed(class) => line.signed_decimal(fields.number(class)?.cast_signed()),
                Step::Hexadecimal(class) => number::hexadecimal(line.out(), fields.number(class)?),
                Step::String => escape(&mut line, fields.string()?),
                Step::Text(length) => escape(&mut line, fields.text(length)?),
                Step::Align(alignment) => fields.align(*alignment),
                Step::Other(class, named) => {
                    fields.visit(class, &mut Values::new(line.out(), style, *named))?;
                }
                Step::Hidden(class) => fields.skip_field(class)?,
            }
        }
        let pending = line.pending();
        whole.end_borrow(pending);
        Ok(())
    }

    fn structure(&mut self, structure: &Structure, named: bool, style: &Style) {
        self.0.push(Step::Align(structure.alignment));
        self.literal("{");
        let mut first = true;
        for member in &structure.members {
            if member.hidden {
                self.0.push(Step::Hidden(member.class.clone()));
                continue;
            }
            self.literal(if first { " " } else { ", " });
            first = false;
            if named {
                self.literal(style.name);
                self.literal(&member.name);
                self.literal(style.end);
                self.literal(" = ");
            }
            self.class(&member.class, named, style);
        }
        self.literal(" }");
    }

    fn class(&mut self, class: &FieldClass, named: bool, style: &Style) {
        match class {
            FieldClass::Integer(integer)
                if integer.base == Base::Decimal && integer.labels.is_none() =>
            {
                self.literal(style.number);
                self.0.push(if integer.signed {
                    Step::Signed(integer.clone())
                } else {
                    Step::Unsigned(integer.clone())
                });
                self.literal(style.end);
            }
            FieldClass::Integer(integer)
                if integer.base == Base::Hexadecimal
                    && integer.labels.is_none()
                    && !integer.signed =>
            {
                self.literal(style.number);
                self.0.push(Step::Hexadecimal(integer.clone()));
                self.literal(style.end);
            }
            FieldClass::String(Encoding::Utf8) => self.text(Step::String, style),
            FieldClass::Text {
                length,
                encoding: Encoding::Utf8,
            } => self.text(Step::Text(length.clone()), style),
            FieldClass::Structure(structure) => self.structure(structure, named, style),
            other => self.0.push(Step::Other(other.clone(), named)),
        }
    }

    fn text(&mut self, step: Step, style: &Style) {
        self.literal(style.text);
        self.literal("\"");
        self.0.push(step);
        self.literal("\"");
        self.literal(style.end);
    }

    fn hide(&mut self, root: &Structure) {
        self.0.push(Step::Align(root.alignment));
        for member in &root.members {
            self.0.push(Step::Hidden(member.class.clone()));
        }
    }

    fn literal(&mut self, text: &str) {
        // An alignment between two texts does not part them.
        let last = self
            .0
            .iter_mut()
            .rev()
            .find(|step| !matches!(step, Step::Align(_)));
        match last {
            _ if text.is_empty() => {}
            Some(Step::Literal(before)) => before.push(text.as_bytes()),
            _ => self.0.push(Step::Literal(text.as_bytes().into())),
        }
    }
}

/// Appends `text` with what is not printable replaced.
#[inline(always)]
fn escape(line: &mut Line<'_>, text: &[u8]) {
    if is_plain(text) {
        line.text(text);
    } else {
        escape_bytes(line.out(), text);
    }
}
