//! Errors as text for users.

use std::error::Error;

/// Describes an error and what caused it, separated by colons. A cause that the text before it
/// already contains is not repeated.
#[must_use]
pub fn describe_error(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(cause_text.trim_end()) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    // Some parsers end their messages with a line break.
    text.truncate(text.trim_end().len());
    text
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::io;

    use super::*;

    #[derive(Debug)]
    struct Outer {
        text: &'static str,
        source: io::Error,
    }

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.text)
        }
    }

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.source)
        }
    }

    #[test]
    fn a_cause_is_described_once_whether_or_not_the_error_contains_it() {
        for text in ["cannot read x", "cannot read x: not there"] {
            let source = io::Error::other("not there\n");
            let error = Outer { text, source };
            assert_eq!(describe_error(&error), "cannot read x: not there");
        }
    }
}
