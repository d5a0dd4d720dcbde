//! The event classes: names, fields and ids.

use ctf::write::{
    DeclareError, DeclaredEventClass, DeclaredStreamClass, EventDeclaration, FieldType,
    MetadataText, Width,
};

use super::PREFIX;

/// The fields that the packet context of a recording's stream has at its end.
pub(super) const PACKET_CONTEXT: [&str; 3] = ["first_record", "depth", "have_step"];

const NUMBER: FieldType = FieldType::Unsigned(Width::Bits64);
const LINE: FieldType = FieldType::Signed(Width::Bits64);
const TEXT: FieldType = FieldType::Text;

/// The classes with their fields, in the order of [`Class`].
const CLASSES: [(&str, &[(&str, FieldType)]); 14] = [
    (
        "meta",
        &[
            ("program", TEXT),
            ("workdir", TEXT),
            ("args", TEXT),
            ("others", TEXT),
        ],
    ),
    ("path", &[("id", NUMBER), ("path", TEXT)]),
    (
        "function",
        &[
            ("id", NUMBER),
            ("path_id", NUMBER),
            ("line", LINE),
            ("name", TEXT),
        ],
    ),
    ("type", &[("id", NUMBER), ("type", TEXT)]),
    (
        "variable",
        &[
            ("id", NUMBER),
            ("name", TEXT),
            ("legacy", FieldType::Boolean),
        ],
    ),
    (
        "step",
        &[("path_id", NUMBER), ("line", LINE), ("file", TEXT)],
    ),
    (
        "call",
        &[("function_id", NUMBER), ("function", TEXT), ("args", TEXT)],
    ),
    ("return", &[("value", TEXT)]),
    (
        "value",
        &[("variable_id", NUMBER), ("variable", TEXT), ("value", TEXT)],
    ),
    (
        "log",
        &[
            ("kind", FieldType::Unsigned(Width::Bits8)),
            ("metadata", TEXT),
            ("content", TEXT),
        ],
    ),
    ("drop_last_step", &[]),
    ("other", &[("kind", TEXT), ("json", TEXT)]),
    (
        "file",
        &[
            ("path", TEXT),
            ("size", NUMBER),
            ("offset", NUMBER),
            ("content", FieldType::Bytes),
            ("sha256", TEXT),
        ],
    ),
    ("end", &[("records", NUMBER)]),
];

/// An event class that every recording declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Meta,
    Path,
    Function,
    Type,
    Variable,
    Step,
    Call,
    Return,
    Value,
    Log,
    DropLastStep,
    Other,
    File,
    End,
}

impl Class {
    const ALL: [Self; CLASSES.len()] = [
        Self::Meta,
        Self::Path,
        Self::Function,
        Self::Type,
        Self::Variable,
        Self::Step,
        Self::Call,
        Self::Return,
        Self::Value,
        Self::Log,
        Self::DropLastStep,
        Self::Other,
        Self::File,
        Self::End,
    ];

    /// The class of this name.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        let name = name.strip_prefix(PREFIX)?;
        let place = CLASSES.iter().position(|(class, _)| *class == name)?;
        Self::ALL.get(place).copied()
    }
}

/// The event classes of a stream class, declared.
#[derive(Debug, Clone)]
pub(super) struct DeclaredClasses([DeclaredEventClass; CLASSES.len()]);

impl DeclaredClasses {
    /// Declares all of them, with ids from 1 on.
    pub(super) fn declare(
        metadata: &mut MetadataText,
        stream: &DeclaredStreamClass,
    ) -> Result<Self, DeclareError> {
        let mut declared = Vec::with_capacity(CLASSES.len());
        for (id, (class, fields)) in (1..).zip(CLASSES) {
            let fields = fields
                .iter()
                .map(|(name, of)| ((*name).to_owned(), of.clone()));
            declared.push(metadata.event(
                stream,
                &EventDeclaration {
                    fields: fields.collect(),
                    ..EventDeclaration::new(id, &format!("{PREFIX}{class}"))
                },
            )?);
        }
        let declared = declared.try_into();
        Ok(Self(declared.expect("one for each class")))
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "there are as many as there are classes"
    )]
    pub(super) fn class(&self, class: Class) -> &DeclaredEventClass {
        &self.0[class as usize]
    }
}
