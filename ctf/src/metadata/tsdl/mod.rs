//! Parses TSDL, the metadata language of CTF 1.8, into declarations.
//!
//! Text becomes tokens (`lexer`, `literal`), the tokens of one outermost declaration a tree
//! (`cursor`, `attribute_syntax`, `type_syntax`, `block_syntax` make what `syntax` describes), and trees become drafts
//! (`evaluator`, `declarators`, `scalars` for types, `blocks` and `roles` for what has fields).
//! Nothing here resolves references or compares declarations with each other, except by name.

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
mod warnings;

use std::collections::VecDeque;

use crate::error::MetadataError;
use crate::model::{Declaration, Position};
use evaluator::Evaluator;
use lexer::{Kind, Lexer, Token};
use syntax::{BlockKind, Name, Need, Outermost, OutermostKind};

/// The beginning of text that lies in no packets (7.1).
const SIGNATURE: &[u8] = b"/* CTF 1.8";

/// Takes text in pieces cut anywhere, gives declarations. What it gives does not depend on where
/// the text was cut, only when.
///
/// Blocks may come in any order, but a type means nothing before the trace's byte order is known,
/// nor before the environment entries and clocks that it names. A declaration that lacks one of
/// them waits, and all types, streams and events after it wait with it.
///
/// After an error nothing more can be taken.
pub(crate) struct Parser {
    /// The part of the signature that is still to come.
    signature: &'static [u8],
    lexer: Lexer,
    /// The tokens of the declaration that is being read.
    tokens: Vec<Token>,
    /// The number of open braces in it.
    depth: u32,
    /// A trace block has been read, though perhaps not evaluated.
    has_trace: bool,
    pending: VecDeque<Outermost>,
    /// The number of tokens of all pending declarations.
    pending_tokens: usize,
    evaluator: Evaluator,
    ready: Vec<Declaration>,
    /// The trace is among `ready`, or was.
    trace_is_ready: bool,
    streams: usize,
    events: usize,
}

impl Parser {
    /// Text from packets may lack the signature.
    pub(crate) fn new(packetised: bool) -> Self {
        Self {
            signature: if packetised { &[] } else { SIGNATURE },
            lexer: Lexer::new(),
            tokens: Vec::new(),
            depth: 0,
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

    /// Gives the declarations that `text` completes, in the order in which they could be taken, after
    /// the trace if that is among them. None come before the trace has been given.
    ///
    /// # Errors
    ///
    /// If the text is malformed or says what it must not.
    pub(crate) fn extend(&mut self, text: &[u8]) -> Result<Vec<Declaration>, MetadataError> {
        let mut tokens = Vec::new();
        for byte in text {
            self.check_signature(*byte)?;
            self.lexer.push(*byte, &mut tokens)?;
            for token in tokens.drain(..) {
                self.add_token(token)?;
            }
        }
        if !self.trace_is_ready {
            return Ok(Vec::new());
        }
        // Only the trace, which comes once: the order of all others must not depend on the pieces.
        self.ready
            .sort_by_key(|declaration| !matches!(declaration, Declaration::Trace(_)));
        Ok(std::mem::take(&mut self.ready))
    }

    /// Says that no more text comes.
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
    pub(crate) fn take_warnings(&mut self) -> Vec<String> {
        self.evaluator.warnings.take_all()
    }

    fn check_signature(&mut self, byte: u8) -> Result<(), MetadataError> {
        if let Some((next, rest)) = self.signature.split_first() {
            if byte != *next {
                return Err(no_signature());
            }
            self.signature = rest;
        }
        Ok(())
    }

    /// Adds a token to its declaration, and takes the declaration if it was the last.
    fn add_token(&mut self, token: Token) -> Result<(), MetadataError> {
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
                ends = self.depth == 0 && block_syntax::block_kind(&self.tokens).is_some();
            }
            Kind::Mark(";") => ends = self.depth == 0,
            _ => {}
        }
        self.tokens.push(token);
        if ends {
            let declaration = block_syntax::outermost(&self.tokens)?;
            self.tokens.clear();
            if let Some(declaration) = declaration {
                self.accept_declaration(declaration)?;
            }
        }
        Ok(())
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
                self.evaluator.native = blocks::byte_order(entries, at)?;
                self.defer_declaration(declaration)?;
            }
            OutermostKind::Block(BlockKind::Stream | BlockKind::Event, _)
            | OutermostKind::Type(_) => self.defer_declaration(declaration)?,
        }
        self.evaluate_pending()
    }

    fn defer_declaration(&mut self, declaration: Outermost) -> Result<(), MetadataError> {
        self.pending_tokens += declaration.tokens;
        if self.pending_tokens > limits::MAX_PENDING_TOKENS {
            let what = "too much waits for a trace, a clock or an environment entry";
            return Err(MetadataError::text(declaration.at, what));
        }
        self.pending.push_back(declaration);
        Ok(())
    }

    /// Evaluates what lacks nothing any more, in the order of the text.
    fn evaluate_pending(&mut self) -> Result<(), MetadataError> {
        if !self.has_trace {
            return Ok(());
        }
        while let Some(first) = self.pending.front_mut() {
            // What is known stays known, so that no need is asked about twice once it is.
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
    let at = Position { line: 1, column: 1 };
    MetadataError::text(at, "the text must begin with `/* CTF 1.8`")
}
