//! Colours on a terminal.

/// The sequences before and after the parts of a line; all are empty without colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Style {
    pub(super) time: &'static str,
    pub(super) event: &'static str,
    pub(super) name: &'static str,
    pub(super) number: &'static str,
    pub(super) text: &'static str,
    pub(super) label: &'static str,
    pub(super) unknown: &'static str,
    pub(super) end: &'static str,
}

impl Style {
    pub(super) const fn plain() -> Self {
        Self {
            time: "",
            event: "",
            name: "",
            number: "",
            text: "",
            label: "",
            unknown: "",
            end: "",
        }
    }

    pub(super) const fn coloured() -> Self {
        Self {
            time: "\x1b[1m\x1b[33m",
            event: "\x1b[1m\x1b[35m",
            name: "\x1b[36m",
            number: "\x1b[1m",
            text: "\x1b[1m",
            label: "\x1b[1m",
            unknown: "\x1b[1m\x1b[31m",
            end: "\x1b[0m",
        }
    }
}
