//! The lexer: from the text of a filter to its tokens.

use super::error::FilterError;
use super::glob::{Pattern, Piece};

/// A token of a filter.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Token {
    /// A name as it is, or between backquotes.
    Name {
        text: String,
        quoted: bool,
    },
    /// `$` and the name of a property.
    Property(String),
    Integer(i128),
    Float(f64),
    Text(Pattern),
    /// A symbol, which is one of [`SYMBOLS`].
    Symbol(&'static str),
}

/// The symbols of the language, longer ones first.
const SYMBOLS: [&str; 15] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "!", "(", ")", "[", "]", ".", ",",
];

/// The tokens of `text`, each with its column, from 0.
pub(crate) fn tokens(text: &str) -> Result<Vec<(usize, Token)>, FilterError> {
    let mut lexer = Lexer {
        rest: text,
        column: 0,
    };
    let mut tokens = Vec::new();
    loop {
        while lexer.rest.starts_with(char::is_whitespace) {
            lexer.next();
        }
        let column = lexer.column;
        let Some(first) = lexer.rest.chars().next() else {
            return Ok(tokens);
        };
        let token = lexer
            .token(first)
            .map_err(|(at, what)| FilterError::new(text, at, what))?;
        tokens.push((column, token));
    }
}

struct Lexer<'t> {
    rest: &'t str,
    /// The position in characters, from 0.
    column: usize,
}

type Failed = (usize, String);

impl Lexer<'_> {
    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let next = chars.next()?;
        self.rest = chars.as_str();
        self.column += 1;
        Some(next)
    }

    fn token(&mut self, first: char) -> Result<Token, Failed> {
        let at = self.column;
        if first.is_ascii_digit() || first == '-' {
            return self.number();
        }
        if is_name(first) {
            let text = self.name();
            return Ok(Token::Name {
                text,
                quoted: false,
            });
        }
        match first {
            '"' => return self.text(),
            '`' => return self.quoted_name(),
            '$' => {
                self.next();
                return Ok(Token::Property(self.name()));
            }
            _ => {}
        }
        for symbol in SYMBOLS {
            if self.rest.starts_with(symbol) {
                for _ in symbol.chars() {
                    self.next();
                }
                return Ok(Token::Symbol(symbol));
            }
        }
        let advice = match first {
            '=' => ": equality is written ==",
            '&' => ": both is written &&",
            '|' => ": either is written ||",
            '\'' => ": texts stand between \" and \"",
            _ => "",
        };
        Err((at, format!("{first:?} means nothing here{advice}")))
    }

    fn name(&mut self) -> String {
        let mut name = String::new();
        while let Some(char) = self.rest.chars().next().filter(|char| is_name(*char)) {
            name.push(char);
            self.next();
        }
        name
    }

    fn quoted_name(&mut self) -> Result<Token, Failed> {
        let begin = self.column;
        self.next();
        let mut text = String::new();
        loop {
            match self.next() {
                Some('`') => return Ok(Token::Name { text, quoted: true }),
                Some(char) => text.push(char),
                None => return Err((begin, "this name has no closing `".to_owned())),
            }
        }
    }

    fn number(&mut self) -> Result<Token, Failed> {
        let begin = self.column;
        let mut text = String::new();
        while let Some(char) = self.rest.chars().next() {
            // A sign may follow the `e` of an exponent, but not the digit `e` of a hexadecimal
            // number.
            let exponent = matches!(text.chars().last(), Some('e' | 'E')) && !is_hex(&text);
            let sign = matches!(char, '+' | '-') && (text.is_empty() || exponent);
            // Letters are taken too, so that `12ms` is one wrong number instead of two tokens.
            if !(sign || is_name(char) || char == '.') {
                break;
            }
            text.push(char);
            self.next();
        }
        let magnitude = text.strip_prefix('-').unwrap_or(&text);
        let digits = magnitude
            .strip_prefix("0x")
            .or_else(|| magnitude.strip_prefix("0X"));
        let parsed = match digits {
            // The parser of numbers would take another sign.
            Some(digits) if digits.starts_with(['+', '-']) => None,
            Some(digits) => i128::from_str_radix(digits, 16).ok(),
            None if !magnitude.starts_with(|char: char| char.is_ascii_digit()) => None,
            None if magnitude.bytes().all(|byte| byte.is_ascii_digit()) => magnitude.parse().ok(),
            None => {
                let float = text
                    .parse()
                    .map_err(|_| (begin, format!("{text} is no number")))?;
                return Ok(Token::Float(float));
            }
        };
        let value = parsed.map(|value| {
            if magnitude.len() < text.len() {
                -value
            } else {
                value
            }
        });
        // No field has more than 64 bits, with or without a sign.
        let allowed = i128::from(i64::MIN)..=i128::from(u64::MAX);
        match value {
            Some(value) if allowed.contains(&value) => Ok(Token::Integer(value)),
            Some(_) => Err((begin, format!("{text} does not fit into 64 bits"))),
            None => Err((begin, format!("{text} is no number of 64 bits"))),
        }
    }

    fn text(&mut self) -> Result<Token, Failed> {
        let begin = self.column;
        self.next();
        let mut pieces = Vec::new();
        let push = |char: char| {
            let mut bytes = [0; 4];
            let bytes = char.encode_utf8(&mut bytes).bytes();
            bytes.map(Piece::Byte).collect::<Vec<_>>()
        };
        loop {
            let at = self.column;
            match self.next() {
                Some('"') => return Ok(Token::Text(Pattern::new(pieces))),
                Some('*') => pieces.push(Piece::Any),
                Some('?') => pieces.push(Piece::One),
                Some('\\') => match self.next() {
                    Some('n') => pieces.push(Piece::Byte(b'\n')),
                    Some('t') => pieces.push(Piece::Byte(b'\t')),
                    Some(char @ ('"' | '\\' | '*' | '?')) => pieces.extend(push(char)),
                    Some(char) => return Err((at, format!("\\{char} means nothing in a text"))),
                    None => return Err((begin, "this text has no closing \"".to_owned())),
                },
                Some(char) => pieces.extend(push(char)),
                None => return Err((begin, "this text has no closing \"".to_owned())),
            }
        }
    }
}

/// Whether a character may be in a name that is not quoted.
pub(crate) fn is_name(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

fn is_hex(text: &str) -> bool {
    let text = text.strip_prefix('-').unwrap_or(text);
    text.starts_with("0x") || text.starts_with("0X")
}
