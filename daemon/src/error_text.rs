//! Errors as one message for the user.

use std::error::Error;

/// The message of an error and those of its causes. A cause that the message contains already is not repeated: some
/// errors name their cause themselves, for logs that print only the error.
#[must_use]
pub fn error_text(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.contains(message.trim_end()) {
            text = format!("{text}: {message}");
        }
        cause = error.source();
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use std::io;

    use thiserror::Error;

    use super::*;

    #[derive(Debug, Error)]
    enum TestError {
        #[error("cannot read file: {source}")]
        WithCause { source: io::Error },
        #[error("cannot start")]
        WithoutCause { source: Box<TestError> },
    }

    #[test]
    fn cause_is_printed_once_whether_or_not_the_error_contains_it() {
        let inner = TestError::WithCause {
            source: io::Error::other("disk failure\n"),
        };
        assert_eq!(error_text(&inner), "cannot read file: disk failure");
        let outer = TestError::WithoutCause {
            source: Box::new(inner),
        };
        let want = "cannot start: cannot read file: disk failure";
        assert_eq!(error_text(&outer), want);
    }
}
