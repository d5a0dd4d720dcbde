//! A cursor over the tokens of one declaration.

use std::collections::VecDeque;
use std::sync::Arc;

use super::lexer::{Kind, Token};
use super::limits::MAX_NESTING;
use super::syntax::{Name, Need, Path};
use crate::error::MetadataError;
use crate::metadata::warning::{Deviation, Warnings};
use crate::model::Position;

/// Words that cannot name a field, a type or an option of a variant.
const KEYWORDS: [&str; 28] = [
    "_Bool",
    "_Complex",
    "_Imaginary",
    "align",
    "callsite",
    "char",
    "clock",
    "const",
    "double",
    "enum",
    "env",
    "event",
    "float",
    "floating_point",
    "int",
    "integer",
    "long",
    "short",
    "signed",
    "stream",
    "string",
    "struct",
    "trace",
    "typealias",
    "typedef",
    "unsigned",
    "variant",
    "void",
];

pub(super) fn is_keyword(word: &str) -> bool {
    // The list is sorted.
    KEYWORDS.binary_search(&word).is_ok()
}

/// The place of the parser in the tokens of a declaration.
pub(super) struct Cursor<'a> {
    tokens: &'a [Token],
    /// The position of the next token, or of the last one at the end.
    here: Position,
    depth: u32,
    pub(super) needs: VecDeque<Need>,
    warnings: &'a mut Warnings,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(tokens: &'a [Token], warnings: &'a mut Warnings) -> Self {
        let here = tokens.first().map(|token| token.at).unwrap_or_default();
        Self {
            tokens,
            here,
            depth: 0,
            needs: VecDeque::new(),
            warnings,
        }
    }

    pub(super) const fn at(&self) -> Position {
        self.here
    }

    pub(super) fn peek(&self) -> Option<&'a Kind> {
        self.peek_at(0)
    }

    pub(super) fn peek_at(&self, ahead: usize) -> Option<&'a Kind> {
        self.tokens.get(ahead).map(|token| &token.kind)
    }

    /// The next token, if it is a word or keyword.
    pub(super) fn peek_word(&self) -> Option<&'a Arc<str>> {
        match self.peek() {
            Some(Kind::Word(word)) => Some(word),
            _ => None,
        }
    }

    pub(super) fn peek_mark(&self, mark: &str) -> bool {
        matches!(self.peek(), Some(Kind::Mark(found)) if *found == mark)
    }

    pub(super) fn skip(&mut self) {
        if let Some((_, rest)) = self.tokens.split_first() {
            self.tokens = rest;
            // At the end the position stays, because errors need a place in the text.
            if let Some(next) = rest.first() {
                self.here = next.at;
            }
        }
    }

    /// Takes this mark, if it is the next token.
    pub(super) fn take_mark(&mut self, mark: &str) -> bool {
        let found = self.peek_mark(mark);
        if found {
            self.skip();
        }
        found
    }

    /// Takes the brace that ends a body of declarations, if it is the next token after semicolons
    /// that end nothing.
    pub(super) fn take_end(&mut self) -> bool {
        while self.take_extra_semicolon() {}
        self.take_mark("}")
    }

    /// Takes a semicolon where a declaration may begin.
    pub(super) fn take_extra_semicolon(&mut self) -> bool {
        let at = self.here;
        let found = self.take_mark(";");
        if found {
            let what = "a `;` ends nothing";
            (self.warnings).add_deviation(Deviation::ExtraSemicolon, at, what);
        }
        found
    }

    /// Takes this word, if it is the next token.
    pub(super) fn take_word(&mut self, word: &str) -> bool {
        let found = self.peek_word().is_some_and(|found| **found == *word);
        if found {
            self.skip();
        }
        found
    }

    /// Takes a name that is no keyword; `None` if the next token is none.
    pub(super) fn take_name(&mut self) -> Option<Name> {
        let at = self.here;
        let text = self.peek_word().filter(|word| !is_keyword(word))?.clone();
        self.skip();
        Some(Name { text, at })
    }

    pub(super) fn demand_mark(&mut self, mark: &str) -> Result<(), MetadataError> {
        if self.take_mark(mark) {
            Ok(())
        } else {
            Err(self.expected(&format!("`{mark}`")))
        }
    }

    /// Words with `.` or `->` between them; keywords may be among them.
    pub(super) fn path(&mut self) -> Result<Path, MetadataError> {
        let at = self.here;
        let mut words = Vec::new();
        loop {
            let word = self.peek_word().ok_or_else(|| self.expected("a name"))?;
            words.push(word.clone());
            self.skip();
            if !self.take_mark(".") && !self.take_mark("->") {
                return Ok(Path { words, at });
            }
        }
    }

    /// Takes a number with an optional sign; `None` if the next tokens are none.
    pub(super) fn take_number(&mut self) -> Option<i128> {
        let negative = self.peek_mark("-");
        let signed = negative || self.peek_mark("+");
        let Some(Kind::Number(number)) = self.peek_at(usize::from(signed)) else {
            return None;
        };
        if signed {
            self.skip();
        }
        self.skip();
        // `i128`, because `-` may stand before a number above `i64::MAX`.
        let number = i128::from(*number);
        Some(if negative { -number } else { number })
    }

    pub(super) fn demand_number(&mut self) -> Result<i128, MetadataError> {
        self.take_number()
            .ok_or_else(|| self.expected("an integer"))
    }

    pub(super) fn expected(&self, what: &str) -> MetadataError {
        let found = match self.peek() {
            Some(Kind::Word(word)) if is_keyword(word) => format!("the keyword `{word}`"),
            Some(kind) => kind.to_string(),
            None => "the end of the declaration".to_owned(),
        };
        self.wrong(format!("{what} is expected, not {found}"))
    }

    pub(super) fn wrong(&self, what: impl Into<String>) -> MetadataError {
        MetadataError::text(self.here, what)
    }

    /// Runs `inner` one type deeper. The depth is limited because the parser is recursive.
    pub(super) fn nested<T>(
        &mut self,
        inner: impl FnOnce(&mut Self) -> Result<T, MetadataError>,
    ) -> Result<T, MetadataError> {
        if self.depth == MAX_NESTING {
            return Err(self.wrong(format!("more than {MAX_NESTING} types within each other")));
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tsdl_keywords_are_sorted_for_binary_search() {
        assert!(KEYWORDS.is_sorted());
        assert!(is_keyword("variant") && is_keyword("_Bool") && !is_keyword("fields"));
    }
}
