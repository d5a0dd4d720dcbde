//! Why a call failed, in the words of others.

/// Longest reason that is kept, in bytes. Parts of it come from the store, and end in logs.
const MAX_REASON: usize = 300;

/// The words of a store or of the system for a failure: one line of limited length.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StoreReason(String);

impl StoreReason {
    /// Makes one line of limited length, in which each control character is a space.
    pub(crate) fn new(text: &str) -> Self {
        let mut line = String::new();
        for word in text.split(|c: char| c.is_control() || c.is_whitespace()) {
            if word.is_empty() {
                continue;
            }
            if line.len() + word.len() > MAX_REASON {
                line.push_str(" ...");
                break;
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        Self(line)
    }
}
