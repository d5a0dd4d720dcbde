//! Splits text into tokens, byte by byte, so that chunks may end anywhere.

use std::fmt;
use std::sync::Arc;

use super::limits::MAX_TOKEN_BYTES;
use super::literal;
use crate::error::MetadataError;
use crate::metadata::warning::Warnings;
use crate::model::Position;

/// The smallest piece of text that means something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) at: Position,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// An identifier or a keyword.
    Word(Arc<str>),
    /// An integer without its sign.
    Number(u64),
    /// A string without its quotation marks, escapes replaced.
    Text(Arc<str>),
    /// A mark: a brace, a semicolon, an operator.
    Mark(&'static str),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => write!(f, "`{word}`"),
            Self::Number(number) => write!(f, "`{number}`"),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Mark(mark) => write!(f, "`{mark}`"),
        }
    }
}

/// Splits bytes into tokens.
#[derive(Debug, Clone)]
pub(super) struct Lexer {
    state: LexerState,
    /// Bytes of the token that is being read, without quotes.
    spelling: Vec<u8>,
    /// The position of that token, or of that comment.
    start: Position,
    /// The position of the next byte.
    here: Position,
}

#[derive(Debug, Clone, Copy)]
enum LexerState {
    Between,
    Word,
    Number,
    Quoted { quote: u8, escaped: bool },
    Slash,
    LineComment,
    BlockComment { star: bool },
    Colon,
    Minus,
    OneDot,
    TwoDots,
}

/// The effect of a byte on the token that has begun.
enum Step {
    Taken,
    /// The byte was taken, and was the last of the token.
    Ends(Kind),
    /// The byte was not taken: the byte before it was the last of the token.
    Ended(Kind),
}

impl Lexer {
    pub(super) const fn new() -> Self {
        Self {
            state: LexerState::Between,
            spelling: Vec::new(),
            start: Position { line: 1, column: 1 },
            here: Position { line: 1, column: 1 },
        }
    }

    /// Takes one byte. The tokens that it completes, two at most, are appended to `out`.
    ///
    /// # Errors
    ///
    /// If no token has this byte at this place, or if a token is malformed.
    pub(super) fn push(
        &mut self,
        byte: u8,
        out: &mut Vec<Token>,
        warnings: &mut Warnings,
    ) -> Result<(), MetadataError> {
        let mut step = self.step(byte, warnings)?;
        if let Step::Ended(kind) = step {
            out.push(self.token(kind));
            step = self.step(byte, warnings)?;
        }
        // After `Ended` the byte has begun a new token, so that there are two tokens at most.
        if let Step::Ends(kind) | Step::Ended(kind) = step {
            out.push(self.token(kind));
        }
        self.advance(byte);
        Ok(())
    }

    /// The position of the next byte.
    pub(super) const fn here(&self) -> Position {
        self.here
    }

    /// The position of a token or comment that has begun and not ended.
    pub(super) fn unfinished(&self) -> Option<Position> {
        (!matches!(self.state, LexerState::Between | LexerState::LineComment)).then_some(self.start)
    }

    fn step(&mut self, byte: u8, warnings: &mut Warnings) -> Result<Step, MetadataError> {
        match self.state {
            LexerState::Between => self.begin(byte),
            LexerState::Word if is_word(byte) => self.spell(byte),
            LexerState::Word => literal::word(&self.spelling)
                .map(|word| self.ended(Kind::Word(word)))
                .map_err(|what| self.wrong(what)),
            LexerState::Number if byte.is_ascii_alphanumeric() || byte == b'_' => self.spell(byte),
            LexerState::Number => literal::number(&self.spelling, &mut |deviation, what| {
                warnings.add_deviation(deviation, self.start, &what);
            })
            .map(|number| self.ended(Kind::Number(number)))
            .map_err(|what| self.wrong(what)),
            LexerState::Quoted { quote, escaped } => self.quoted(byte, quote, escaped, warnings),
            LexerState::Slash => match byte {
                b'/' => self.goes_to(LexerState::LineComment),
                b'*' => self.goes_to(LexerState::BlockComment { star: false }),
                _ => Err(self.wrong("no token is `/`".into())),
            },
            LexerState::LineComment if byte == b'\n' => self.goes_to(LexerState::Between),
            LexerState::LineComment => Ok(Step::Taken),
            LexerState::BlockComment { star: true } if byte == b'/' => {
                self.goes_to(LexerState::Between)
            }
            LexerState::BlockComment { .. } => {
                self.goes_to(LexerState::BlockComment { star: byte == b'*' })
            }
            LexerState::Colon if byte == b'=' => Ok(self.ends(":=")),
            LexerState::Colon => Ok(self.ended(Kind::Mark(":"))),
            LexerState::Minus if byte == b'>' => Ok(self.ends("->")),
            LexerState::Minus => Ok(self.ended(Kind::Mark("-"))),
            LexerState::OneDot if byte == b'.' => self.goes_to(LexerState::TwoDots),
            LexerState::OneDot => Ok(self.ended(Kind::Mark("."))),
            LexerState::TwoDots if byte == b'.' => Ok(self.ends("...")),
            LexerState::TwoDots => Err(self.wrong("no token is `..`".into())),
        }
    }

    fn begin(&mut self, byte: u8) -> Result<Step, MetadataError> {
        self.start = self.here;
        let state = match byte {
            _ if is_space(byte) => LexerState::Between,
            b'/' => LexerState::Slash,
            b':' => LexerState::Colon,
            b'-' => LexerState::Minus,
            b'.' => LexerState::OneDot,
            b'"' | b'\'' => LexerState::Quoted {
                quote: byte,
                escaped: false,
            },
            b'0'..=b'9' => {
                self.state = LexerState::Number;
                return self.spell(byte);
            }
            _ if is_word(byte) => {
                self.state = LexerState::Word;
                return self.spell(byte);
            }
            _ => {
                let mark = mark(byte).ok_or_else(|| {
                    self.wrong(format!("no token begins with {:?}", char::from(byte)))
                })?;
                return Ok(self.ends(mark));
            }
        };
        self.goes_to(state)
    }

    fn quoted(
        &mut self,
        byte: u8,
        quote: u8,
        escaped: bool,
        warnings: &mut Warnings,
    ) -> Result<Step, MetadataError> {
        match byte {
            // A missing quote would otherwise hide all declarations up to the next quote.
            b'\n' => Err(self.wrong("the text has no closing quote in its line".into())),
            0 => Err(self.wrong("a NUL within a text".into())),
            _ if byte == quote && !escaped => {
                let mut deviates = |deviation, what: String| {
                    warnings.add_deviation(deviation, self.start, &what);
                };
                let kind = if quote == b'"' {
                    literal::text(&self.spelling, &mut deviates).map(Kind::Text)
                } else {
                    literal::character(&self.spelling, &mut deviates).map(Kind::Number)
                };
                let kind = kind.map_err(|what| self.wrong(what))?;
                self.reset();
                Ok(Step::Ends(kind))
            }
            _ => {
                self.state = LexerState::Quoted {
                    quote,
                    escaped: byte == b'\\' && !escaped,
                };
                self.spell(byte)
            }
        }
    }

    fn spell(&mut self, byte: u8) -> Result<Step, MetadataError> {
        // A token has no end of its own, so that hostile text could fill memory with one.
        if self.spelling.len() == MAX_TOKEN_BYTES {
            return Err(self.wrong(format!("a token of more than {MAX_TOKEN_BYTES} bytes")));
        }
        self.spelling.push(byte);
        Ok(Step::Taken)
    }

    #[expect(clippy::unnecessary_wraps, reason = "an arm of `step`, which can fail")]
    const fn goes_to(&mut self, state: LexerState) -> Result<Step, MetadataError> {
        self.state = state;
        Ok(Step::Taken)
    }

    fn ends(&mut self, mark: &'static str) -> Step {
        self.reset();
        Step::Ends(Kind::Mark(mark))
    }

    fn ended(&mut self, kind: Kind) -> Step {
        self.reset();
        Step::Ended(kind)
    }

    fn reset(&mut self) {
        self.state = LexerState::Between;
        self.spelling.clear();
    }

    const fn token(&self, kind: Kind) -> Token {
        Token {
            kind,
            at: self.start,
        }
    }

    const fn advance(&mut self, byte: u8) {
        if byte == b'\n' {
            // Saturating: a wrong place in a message is better than a panic.
            self.here.line = self.here.line.saturating_add(1);
            self.here.column = 1;
        } else if byte & 0xC0 != 0x80 {
            // The further bytes of a character in UTF-8 do not count.
            self.here.column = self.here.column.saturating_add(1);
        }
    }

    const fn wrong(&self, what: String) -> MetadataError {
        MetadataError::Text {
            at: self.start,
            what,
        }
    }
}

pub(super) const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0x0B | 0x0C)
}

const fn is_word(byte: u8) -> bool {
    // A backslash begins the number of a character. (`\u00e9`)
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'\\')
}

const fn mark(byte: u8) -> Option<&'static str> {
    Some(match byte {
        b'{' => "{",
        b'}' => "}",
        b'(' => "(",
        b')' => ")",
        b'[' => "[",
        b']' => "]",
        b'<' => "<",
        b'>' => ">",
        b';' => ";",
        b',' => ",",
        b'=' => "=",
        b'*' => "*",
        b'+' => "+",
        b'@' => "@",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &[u8]) -> Result<Vec<(String, u32)>, MetadataError> {
        with_warnings(text, &mut Warnings::default())
    }

    fn with_warnings(
        text: &[u8],
        warnings: &mut Warnings,
    ) -> Result<Vec<(String, u32)>, MetadataError> {
        let mut lexer = Lexer::new();
        let mut tokens = Vec::new();
        for byte in text {
            lexer.push(*byte, &mut tokens, warnings)?;
        }
        Ok(tokens
            .into_iter()
            .map(|token| (token.kind.to_string(), token.at.column))
            .collect())
    }

    fn shown(text: &[u8]) -> String {
        let tokens = tokens(text).unwrap();
        let tokens: Vec<String> = tokens.into_iter().map(|(kind, _)| kind).collect();
        tokens.join(" ")
    }

    #[test]
    fn tsdl_tokens_need_no_space_between_them() {
        assert_eq!(
            shown(b"a.b->c:=x:-1...+0x1FuLL;/*x**/y//z\n[010]"),
            "`a` `.` `b` `->` `c` `:=` `x` `:` `-` `1` `...` `+` `31` `;` `y` `[` `8` `]`"
        );
    }

    #[test]
    fn tsdl_string_escapes_are_replaced() {
        assert_eq!(
            shown(br#""a\"\\\n\x41\102\?" '\t' "#),
            r#""a\"\\\nAB?" `9`"#
        );
        assert_eq!(shown(b"\\u00e9t\\U000000E9 "), "`\u{e9}t\u{e9}`");
    }

    #[test]
    fn tsdl_escapes_and_numbers_that_c_does_not_have_are_read_with_a_warning() {
        for (text, token, want) in [
            (&br#""\q ""#[..], r#""q ""#, r"`\q` is no escape of C"),
            (br#""\x0231""#, r##""#1""##, "an escape of 0231, above 255"),
            (br#""\x41c""#, r#""\u{1c}""#, "an escape of 41c, above 255"),
            (br#""a\501""#, r#""aA""#, "an escape of 501, above 255"),
            (br#""a\400b""#, r#""a""#, "an escape of 400, above 255"),
            (b"0b101 ", "`5`", "`0b101` is binary"),
        ] {
            let mut warnings = Warnings::default();
            let tokens = with_warnings(text, &mut warnings).unwrap();
            assert_eq!(tokens, [(token.to_owned(), 1)], "{want}");
            let [warning] = &warnings.take_all()[..] else {
                panic!("{want}");
            };
            assert_eq!(
                warning.to_string(),
                format!("metadata, line 1, column 1: {want}")
            );
            assert!(warning.deviation().is_some(), "{want}");
        }
        for text in [&br#""a\x00041\0431" 'a'"#[..], b"0xb1 "] {
            let mut warnings = Warnings::default();
            with_warnings(text, &mut warnings).unwrap();
            assert_eq!(warnings.take_all(), []);
        }
    }

    #[test]
    fn an_escaped_nul_ends_a_tsdl_text() {
        assert_eq!(shown(br#""a\0b" "\x0" "#), r#""a" """#);
    }

    #[test]
    fn a_tsdl_error_column_counts_characters() {
        let tokens = tokens("\"é\" /* éé */ a;".as_bytes()).unwrap();
        assert_eq!(tokens.last(), Some(&("`;`".to_owned(), 15)));
    }

    #[test]
    fn malformed_tsdl_tokens_are_refused() {
        for (text, want) in [
            (&b"/ "[..], "no token is `/`"),
            (b"1 ..;", "no token is `..`"),
            (b"#", "no token begins with '#'"),
            (b"\xff", "no token begins with"),
            (b"\"a\n", "no closing quote"),
            (b"\"a\0", "a NUL"),
            (br#""\x""#, "an escape without digits"),
            (b"'ab'", "one character"),
            (b"0x;", "is no number"),
            (b"0b2;", "is no number"),
            (b"08;", "is no number"),
            (b"1uu;", "is no number"),
            (b"18446744073709551616;", "above 64 bits"),
            (b"\\u12;", "is no name"),
        ] {
            let MetadataError::Text { at, what } = tokens(text).unwrap_err() else {
                panic!("{text:?}");
            };
            assert!(what.contains(want), "{text:?}: {at}: {what}");
        }
    }

    #[test]
    fn a_tsdl_token_beyond_the_size_limit_is_refused() {
        tokens(&vec![b'a'; MAX_TOKEN_BYTES + 1]).unwrap_err();
    }
}
