//! Parses TSDL, the metadata language of CTF 1.8, into declarations.
//!
//! Text becomes tokens (`lexer`, `literal`). The tokens of one outermost declaration become a tree
//! of `syntax` (`cursor`, `attribute_syntax`, `type_syntax`, `block_syntax`). Trees become drafts
//! of declarations (`evaluator`, `declarators`, `scalars` for types, `blocks` and `roles` for
//! blocks). References to fields are resolved later, by [`resolve`](super::resolve).

mod attribute_syntax;
mod attributes;
mod block_syntax;
mod blocks;
mod cursor;
mod declarators;
mod evaluator;
mod lexer;
mod limits;
mod literal;
mod roles;
mod scalars;
mod scopes;
mod syntax;
#[cfg(test)]
mod tests;
mod type_syntax;

use std::collections::VecDeque;

use super::warning::{Deviation, Warning};
use crate::error::MetadataError;
use crate::model::{Declaration, Position};
use evaluator::Evaluator;
use lexer::{Kind, Lexer, Token};
use syntax::{BlockKind, Name, Need, Outermost, OutermostKind};

/// The beginning of text that lies in no packets (7.1).
const SIGNATURE: &[u8] = b"/* CTF 1.8";
const BEGIN: Position = Position { line: 1, column: 1 };

/// Parses text that arrives in pieces cut anywhere. The cuts do not change the declarations, only
/// when they are returned.
///
/// Blocks may be in any order, but a type cannot be evaluated before the byte order of the trace,
/// and the environment entries and clocks that the type names. A declaration that lacks one of them
/// is pending, and so are all types, streams and events after it, because names of types are
/// looked up in the order of the text.
///
/// After an error the parser must not be used.
pub(crate) struct Parser {
    /// The rest of the signature that has not been read.
    signature: &'static [u8],
    lexer: Lexer,
    /// The tokens of the declaration that is being read.
    tokens: Vec<Token>,
    /// The number of open braces in it.
    depth: u32,
    /// The block that has ended at its brace, if its semicolon has not been read.
    unended: Option<BlockKind>,
    /// Whether a trace block has been read; it may be pending.
    has_trace: bool,
    pending: VecDeque<Outermost>,
    /// The number of tokens of all pending declarations.
    pending_tokens: usize,
    evaluator: Evaluator,
    ready: Vec<Declaration>,
    /// Whether the trace has been evaluated.
    trace_is_ready: bool,
    streams: usize,
    events: usize,
}

impl Parser {
    /// A parser at the beginning of text. Text from packets may lack the signature: LTTng's kernel
    /// tracer leaves it out.
    pub(crate) fn new(packetised: bool) -> Self {
        Self {
            signature: if packetised { &[] } else { SIGNATURE },
            lexer: Lexer::new(),
            tokens: Vec::new(),
            depth: 0,
            unended: None,
            has_trace: false,
            pending: VecDeque::new(),
            pending_tokens: 0,
            evaluator: Evaluator::new(),
            ready: Vec::new(),
            trace_is_ready: false,
            streams: 0,
            events: 0,
        }
    }

    /// Returns the declarations that `text` completes, the trace first. Nothing is returned before
    /// the trace.
    ///
    /// # Errors
    ///
    /// If the text is malformed or breaks a rule of CTF 1.8.
    pub(crate) fn extend(&mut self, text: &[u8]) -> Result<Vec<Declaration>, MetadataError> {
        let mut tokens = Vec::new();
        for byte in text {
            self.check_signature(*byte)?;
            self.lexer
                .push(*byte, &mut tokens, &mut self.evaluator.warnings)?;
            for token in tokens.drain(..) {
                self.add_token(token)?;
            }
        }
        if !self.trace_is_ready {
            return Ok(Vec::new());
        }
        // A stable sort that moves only the trace: clocks and environment entries may be declared
        // before it.
        self.ready
            .sort_by_key(|declaration| !matches!(declaration, Declaration::Trace(_)));
        Ok(std::mem::take(&mut self.ready))
    }

    /// Ends the text.
    ///
    /// # Errors
    ///
    /// If a declaration has begun and not ended, if one names an environment entry or a clock that
    /// was never declared, or if there was no trace.
    pub(crate) fn finish(&mut self) -> Result<(), MetadataError> {
        if !self.signature.is_empty() {
            return Err(no_signature());
        }
        let unfinished = self.tokens.first().map(|token| token.at);
        if let Some(at) = unfinished.or_else(|| self.lexer.unfinished()) {
            return Err(MetadataError::Incomplete { at });
        }
        if let Some(kind) = self.unended {
            return Err(MetadataError::text(self.lexer.here(), after_block(kind)));
        }
        if !self.has_trace {
            let what = "the metadata has no `trace`";
            return Err(MetadataError::text(self.lexer.here(), what));
        }
        match self.pending.front().and_then(|first| first.needs.front()) {
            Some(Need::Clock(Name { text, at })) => Err(MetadataError::text(
                *at,
                format!("there is no clock `{text}`"),
            )),
            Some(Need::Environment(Name { text, at })) => {
                let what = format!("the environment has no `{text}`");
                Err(MetadataError::text(*at, what))
            }
            None => Ok(()),
        }
    }

    /// Takes the warnings since the last call, each with its position.
    pub(crate) fn take_warnings(&mut self) -> Vec<Warning> {
        self.evaluator.warnings.take_all()
    }

    fn check_signature(&mut self, byte: u8) -> Result<(), MetadataError> {
        let Some((next, rest)) = self.signature.split_first() else {
            return Ok(());
        };
        if byte == *next {
            self.signature = rest;
        } else if self.signature == SIGNATURE && lexer::is_space(byte) {
            let what = "white space before `/* CTF 1.8`";
            (self.evaluator.warnings).add_deviation(Deviation::LeadingSpace, BEGIN, what);
        } else {
            return Err(no_signature());
        }
        Ok(())
    }

    /// Adds a token to its declaration, and accepts the declaration if the token was its last.
    fn add_token(&mut self, token: Token) -> Result<(), MetadataError> {
        if let Some(kind) = self.unended.take() {
            if token.kind == Kind::Mark(";") {
                return Ok(());
            }
            let what = format!("{}, not {}", after_block(kind), token.kind);
            return Err(MetadataError::text(token.at, what));
        }
        // babeltrace2 reads such metadata too. `align` continues the definition of a structure.
        if is_complete_type(&self.tokens, self.depth)
            && matches!(&token.kind, Kind::Word(word) if **word != *"align")
        {
            let what = "the definition of the type before has no `;`";
            (self.evaluator.warnings).add_deviation(Deviation::MissingSemicolon, token.at, what);
            let (kind, at) = (Kind::Mark(";"), token.at);
            self.tokens.push(Token { kind, at });
            self.end_declaration()?;
        }
        let at = token.at;
        let wrong = |what: String| Err(MetadataError::text(at, what));
        if self.tokens.len() == limits::MAX_DECLARATION_TOKENS {
            let max = limits::MAX_DECLARATION_TOKENS;
            return wrong(format!("a declaration of more than {max} tokens"));
        }
        let mut ends = false;
        match token.kind {
            Kind::Mark("{") if self.depth == limits::MAX_NESTING => {
                return wrong(format!("more than {} open braces", limits::MAX_NESTING));
            }
            Kind::Mark("{") => self.depth += 1,
            Kind::Mark("}") if self.depth == 0 => {
                return wrong("`}` without its `{`".to_owned());
            }
            Kind::Mark("}") => {
                self.depth -= 1;
                // A block is complete at its brace, though a semicolon follows, other declarations
                // at a semicolon.
                self.unended = block_syntax::block_kind(&self.tokens).filter(|_| self.depth == 0);
                ends = self.unended.is_some();
            }
            Kind::Mark(";") => ends = self.depth == 0,
            _ => {}
        }
        self.tokens.push(token);
        if ends {
            self.end_declaration()?;
        }
        Ok(())
    }

    fn end_declaration(&mut self) -> Result<(), MetadataError> {
        let declaration = block_syntax::outermost(&self.tokens, &mut self.evaluator.warnings)?;
        self.tokens.clear();
        match declaration {
            Some(declaration) => self.accept_declaration(declaration),
            None => Ok(()),
        }
    }

    fn accept_declaration(&mut self, declaration: Outermost) -> Result<(), MetadataError> {
        let at = declaration.at;
        match &declaration.kind {
            OutermostKind::Block(BlockKind::Callsite, _) => {}
            OutermostKind::Block(kind @ (BlockKind::Environment | BlockKind::Clock), entries) => {
                let declared = self.evaluator.block(*kind, entries, at)?;
                self.ready.extend(declared);
            }
            OutermostKind::Block(BlockKind::Trace, _) if self.has_trace => {
                return Err(MetadataError::text(at, "a second `trace`"));
            }
            OutermostKind::Block(BlockKind::Trace, entries) => {
                self.has_trace = true;
                // Evaluated early: types before the trace block depend on its byte order.
                self.evaluator.native = blocks::byte_order(entries, at)?;
                self.defer_declaration(declaration)?;
            }
            OutermostKind::Block(BlockKind::Stream | BlockKind::Event, _)
            | OutermostKind::Type(_) => self.defer_declaration(declaration)?,
        }
        self.evaluate_pending()
    }

    fn defer_declaration(&mut self, declaration: Outermost) -> Result<(), MetadataError> {
        // Hostile metadata never declares what a declaration waits for.
        self.pending_tokens += declaration.tokens;
        if self.pending_tokens > limits::MAX_PENDING_TOKENS {
            let what =
                "too many declarations are pending for a trace, a clock or an environment entry";
            return Err(MetadataError::text(declaration.at, what));
        }
        self.pending.push_back(declaration);
        Ok(())
    }

    /// Evaluates pending declarations in the order of the text, up to the first one that lacks a
    /// name.
    fn evaluate_pending(&mut self) -> Result<(), MetadataError> {
        if !self.has_trace {
            return Ok(());
        }
        while let Some(first) = self.pending.front_mut() {
            // Known names stay known, so that each need is removed for good.
            while let Some(need) = first.needs.front() {
                if !self.evaluator.knows(need) {
                    return Ok(());
                }
                first.needs.pop_front();
            }
            if let Some(first) = self.pending.pop_front() {
                self.pending_tokens -= first.tokens;
                self.evaluate_declaration(&first)?;
            }
        }
        Ok(())
    }

    fn evaluate_declaration(&mut self, declaration: &Outermost) -> Result<(), MetadataError> {
        let (kind, entries) = match &declaration.kind {
            OutermostKind::Type(declaration) => return self.evaluator.declare(declaration),
            OutermostKind::Block(kind, entries) => (*kind, entries),
        };
        let at = declaration.at;
        match kind {
            BlockKind::Stream => self.streams += 1,
            BlockKind::Event => self.events += 1,
            _ => {}
        }
        if self.streams > limits::MAX_STREAM_CLASSES || self.events > limits::MAX_EVENT_CLASSES {
            let what = format!("too many `{}` blocks", kind.keyword());
            return Err(MetadataError::text(at, what));
        }
        let declared = self.evaluator.block(kind, entries, at)?;
        self.ready.extend(declared);
        self.trace_is_ready |= kind == BlockKind::Trace;
        Ok(())
    }
}

fn no_signature() -> MetadataError {
    MetadataError::text(BEGIN, "the text must begin with `/* CTF 1.8`")
}

fn after_block(kind: BlockKind) -> String {
    format!("`;` is expected after the `{}` block", kind.keyword())
}

/// Whether a declaration may be the definition of a structure, a variant or an enumeration that
/// lacks only its semicolon.
fn is_complete_type(tokens: &[Token], depth: u32) -> bool {
    let kind =
        |token: Option<&Token>, is: fn(&Kind) -> bool| token.is_some_and(|token| is(&token.kind));
    depth == 0
        && kind(tokens.last(), |kind| matches!(kind, Kind::Mark("}" | ")")))
        && kind(
            tokens.first(),
            |kind| matches!(kind, Kind::Word(word) if matches!(&**word, "struct" | "variant" | "enum")),
        )
}
