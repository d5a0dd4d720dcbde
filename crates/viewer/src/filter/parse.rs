//! The parser: from the tokens of a filter to its expression.

use super::error::FilterError;
use super::expression::{
    Comparison, Expression, FieldPath, Leaf, Literal, Part, Property, ScopeSet, Test,
};
use super::glob::Pattern;
use super::token::{Token, tokens};

/// Largest nesting of parentheses and negations: more than anybody writes, few enough for the
/// stack.
const MAX_DEPTH: usize = 64;
/// Largest number of comparisons in one filter.
const MAX_COMPARISONS: usize = 1024;
/// Largest number of bytes of a filter.
const MAX_FILTER_BYTES: usize = 64 << 10;
/// Parses a filter. Returns its expression, and the comparisons in it.
pub(crate) fn parse(text: &str) -> Result<(Expression, Vec<Leaf>), FilterError> {
    if text.len() > MAX_FILTER_BYTES {
        return Err(FilterError::new(
            text,
            0,
            format!("it has more than {MAX_FILTER_BYTES} bytes"),
        ));
    }
    let tokens = tokens(text)?;
    let mut parser = Parser::new(text, &tokens);
    let parsed = parser.any().and_then(|expression| match parser.tokens {
        [] => Ok(expression),
        _ => parser.fail("expected && or || or the end"),
    });
    match parsed {
        Ok(expression) => Ok((expression, parser.leaves)),
        Err((column, what)) => Err(FilterError::new(text, column, what)),
    }
}

/// Parses the path of a field, which is all that `text` may have.
pub(crate) fn parse_field(text: &str) -> Result<FieldPath, FilterError> {
    let tokens = tokens(text)?;
    let mut parser = Parser::new(text, &tokens);
    let parsed = parser.operand().and_then(|operand| match operand {
        Operand::FieldPath(path) if parser.tokens.is_empty() => Ok(path),
        Operand::FieldPath(_) => parser.fail("expected the end"),
        _ => Err((0, "expected the name of a field".to_owned())),
    });
    parsed.map_err(|(column, what)| FilterError::new(text, column, what))
}

type Failed = (usize, String);

struct Parser<'t> {
    tokens: &'t [(usize, Token)],
    /// The column after the last character.
    end: usize,
    leaves: Vec<Leaf>,
    depth: usize,
}

/// One side of a comparison.
enum Operand {
    Property(Property),
    FieldPath(FieldPath),
    Literal(Literal),
}

impl<'t> Parser<'t> {
    /// A parser before the first of a text's tokens.
    fn new(text: &str, tokens: &'t [(usize, Token)]) -> Self {
        Self {
            tokens,
            end: text.chars().count(),
            leaves: Vec::new(),
            depth: 0,
        }
    }

    fn column(&self) -> usize {
        self.tokens.first().map_or(self.end, |(column, _)| *column)
    }

    fn fail<T>(&self, what: impl Into<String>) -> Result<T, Failed> {
        Err((self.column(), what.into()))
    }

    fn next(&mut self) -> Option<&'t Token> {
        let ((_, token), rest) = self.tokens.split_first()?;
        self.tokens = rest;
        Some(token)
    }

    fn is(&self, symbol: &str) -> bool {
        matches!(self.tokens.first(), Some((_, Token::Symbol(known))) if *known == symbol)
    }

    fn accept_symbol(&mut self, symbol: &str) -> bool {
        let is = self.is(symbol);
        if is {
            self.next();
        }
        is
    }

    fn expect(&mut self, symbol: &str) -> Result<(), Failed> {
        if self.accept_symbol(symbol) {
            Ok(())
        } else {
            self.fail(format!("expected {symbol}"))
        }
    }

    fn any(&mut self) -> Result<Expression, Failed> {
        self.joined("||", Self::all, Expression::Any)
    }

    fn all(&mut self) -> Result<Expression, Failed> {
        self.joined("&&", Self::term, Expression::All)
    }

    /// Parses one or several parts with `symbol` between them. Several are joined by `join`.
    fn joined(
        &mut self,
        symbol: &str,
        part: fn(&mut Self) -> Result<Expression, Failed>,
        join: fn(Vec<Expression>) -> Expression,
    ) -> Result<Expression, Failed> {
        let first = part(self)?;
        if !self.is(symbol) {
            return Ok(first);
        }
        let mut parts = vec![first];
        while self.accept_symbol(symbol) {
            parts.push(part(self)?);
        }
        Ok(join(parts))
    }

    fn term(&mut self) -> Result<Expression, Failed> {
        // Checked here, because each parenthesis and each negation passes through.
        if self.depth >= MAX_DEPTH {
            return self.fail(format!("more than {MAX_DEPTH} levels of parentheses"));
        }
        self.depth += 1;
        let term = if self.accept_symbol("!") {
            self.term().map(|inner| Expression::Not(Box::new(inner)))
        } else if self.accept_symbol("(") {
            let inner = self.any()?;
            self.expect(")")?;
            Ok(inner)
        } else {
            self.leaf()
        };
        self.depth -= 1;
        term
    }

    fn leaf(&mut self) -> Result<Expression, Failed> {
        let column = self.column();
        let leaf = if self.begins_exists() {
            self.exists()?
        } else {
            self.comparison()?
        };
        if self.leaves.len() >= MAX_COMPARISONS {
            return Err((column, format!("more than {MAX_COMPARISONS} comparisons")));
        }
        self.leaves.push(leaf);
        Ok(Expression::Leaf(self.leaves.len() - 1))
    }

    fn begins_exists(&self) -> bool {
        let [(_, Token::Name { text, quoted }), (_, bracket), ..] = self.tokens else {
            return false;
        };
        text == "exists" && !quoted && *bracket == Token::Symbol("(")
    }

    fn exists(&mut self) -> Result<Leaf, Failed> {
        self.next();
        self.expect("(")?;
        let column = self.column();
        let Operand::FieldPath(path) = self.operand()? else {
            return Err((column, "expected the name of a field".to_owned()));
        };
        self.expect(")")?;
        Ok(Leaf::Exists(path))
    }

    fn comparison(&mut self) -> Result<Leaf, Failed> {
        let left_at = self.column();
        let left = self.operand()?;
        let Some(how) = self.how() else {
            return self.fail("expected a comparison: == != < <= > >=");
        };
        let how_at = self.column();
        self.next();
        let right = self.operand()?;
        let (what, how, with) = match (left, right) {
            (Operand::Literal(_), Operand::Literal(_)) => {
                return Err((
                    left_at,
                    "expected the name of a field on one side".to_owned(),
                ));
            }
            (Operand::Literal(with), what) => (what, how.mirrored(), with),
            (what, Operand::Literal(with)) => (what, how, with),
            _ => {
                let what = "expected a number, a text, true or false on one side";
                return Err((how_at, what.to_owned()));
            }
        };
        let unordered = matches!(with, Literal::Text(Pattern::Glob(_)) | Literal::Boolean(_));
        if unordered && how.is_order() {
            let what = "wildcards, true and false have no order: only == and !=";
            return Err((how_at, what.to_owned()));
        }
        let textual = matches!(with, Literal::Text(_));
        let test = Test { how, with };
        match what {
            Operand::Property(property) => {
                let fits = match property {
                    Property::Name | Property::Trace | Property::Stream => textual,
                    Property::Time => matches!(test.with, Literal::Integer(_) | Literal::Float(_)),
                    Property::LogLevel => true,
                };
                if !fits {
                    let kind = if textual {
                        "a number, in nanoseconds"
                    } else {
                        "a text"
                    };
                    return Err((left_at, format!("this is only compared with {kind}")));
                }
                Ok(Leaf::Property(property, test))
            }
            Operand::FieldPath(path) => Ok(Leaf::Field(path, test)),
            Operand::Literal(_) => Err((left_at, "expected the name of a field".to_owned())),
        }
    }

    fn how(&self) -> Option<Comparison> {
        let (_, Token::Symbol(symbol)) = self.tokens.first()? else {
            return None;
        };
        Some(match *symbol {
            "==" => Comparison::Equal,
            "!=" => Comparison::Unequal,
            "<" => Comparison::Less,
            "<=" => Comparison::LessOrEqual,
            ">" => Comparison::Greater,
            ">=" => Comparison::GreaterOrEqual,
            _ => return None,
        })
    }

    fn operand(&mut self) -> Result<Operand, Failed> {
        let column = self.column();
        let literal = |literal| Ok(Operand::Literal(literal));
        match self.next() {
            Some(Token::Integer(value)) => literal(Literal::Integer(*value)),
            Some(Token::Float(value)) => literal(Literal::Float(*value)),
            Some(Token::Text(pattern)) => literal(Literal::Text(pattern.clone())),
            Some(Token::Name { text, quoted }) => match text.as_str() {
                "true" if !quoted => literal(Literal::Boolean(true)),
                "false" if !quoted => literal(Literal::Boolean(false)),
                "ctx" if !quoted && self.is(".") => self.path_in(ScopeSet::Contexts),
                _ => self.path(ScopeSet::Anywhere, text.clone()),
            },
            Some(Token::Property(name)) => self.property(name, column),
            Some(Token::Symbol(_)) | None => {
                Err((column, "expected a field, a number or a text".to_owned()))
            }
        }
    }

    fn property(&mut self, name: &str, column: usize) -> Result<Operand, Failed> {
        Ok(Operand::Property(match name {
            "name" => Property::Name,
            "trace" => Property::Trace,
            "stream" => Property::Stream,
            "time" => Property::Time,
            "loglevel" => Property::LogLevel,
            "ctx" => return self.path_in(ScopeSet::Contexts),
            "packet" => return self.path_in(ScopeSet::Packet),
            "payload" => return self.path_in(ScopeSet::Payload),
            _ => {
                let known = "$name $trace $stream $time $loglevel $ctx. $packet. $payload.";
                return Err((column, format!("${name} is none of {known}")));
            }
        }))
    }

    fn path_in(&mut self, place: ScopeSet) -> Result<Operand, Failed> {
        self.expect(".")?;
        let first = self.member()?;
        self.path(place, first)
    }

    fn member(&mut self) -> Result<String, Failed> {
        let column = self.column();
        match self.next() {
            Some(Token::Name { text, .. }) => Ok(text.clone()),
            _ => Err((column, "expected the name of a field".to_owned())),
        }
    }

    fn path(&mut self, place: ScopeSet, first: String) -> Result<Operand, Failed> {
        let mut parts = vec![Part::Member(first)];
        loop {
            if self.accept_symbol(".") {
                parts.push(Part::Member(self.member()?));
            } else if self.accept_symbol("[") {
                let column = self.column();
                let index = match self.next() {
                    Some(Token::Integer(index)) => u64::try_from(*index).ok(),
                    _ => None,
                };
                let index = index.ok_or_else(|| (column, "expected a place, from 0".to_owned()))?;
                parts.push(Part::Element(index));
                self.expect("]")?;
            } else {
                return Ok(Operand::FieldPath(FieldPath { place, parts }));
            }
        }
    }
}
