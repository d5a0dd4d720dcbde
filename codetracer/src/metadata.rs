//! What is recorded: `trace_metadata.json`.

use serde::{Deserialize, Serialize};

/// The program of a recording. Members are in the order in which the published writer writes them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingMetadata {
    /// The directory in which the program runs; empty if it is not known.
    #[serde(default)]
    pub workdir: String,
    /// The program.
    #[serde(default)]
    pub program: String,
    /// The arguments of the program, without its own name.
    #[serde(default)]
    pub args: Vec<String>,
}

impl RecordingMetadata {
    /// Parses the content of `trace_metadata.json`. Members that are missing are empty, unknown ones are ignored.
    ///
    /// # Errors
    /// If the text is not an object, or a member is not of its type.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The content of `trace_metadata.json`.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("texts are written without error")
    }
}
