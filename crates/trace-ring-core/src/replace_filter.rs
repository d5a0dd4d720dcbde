//! Changing the filter of another process.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::format::{
    CONTROL_BODY_OFFSET, CONTROL_GENERATION_OFFSET, CONTROL_MAX_SEVERITY_OFFSET, Control,
};
use crate::memory::wake_filter_watchers;

/// Replaces the filter of the process whose file `control` this is, and tells the process.
/// `generation` is that of the filter which is replaced. The caller holds an exclusive `flock` on
/// the file, which may be hostile.
///
/// # Errors
/// When the directives are longer than [`MAX_DIRECTIVES_SIZE`](crate::format::MAX_DIRECTIVES_SIZE),
/// or the file cannot be written or is shorter than it should be.
pub fn replace_filter(control: &File, generation: u32, directives: &str) -> io::Result<()> {
    let body = Control::encode_body(directives)
        .ok_or_else(|| io::Error::other("the filter is too long"))?;
    control.write_all_at(&body, CONTROL_BODY_OFFSET as u64)?;
    let max_severity = Control::max_severity_word(directives).to_le_bytes();
    control.write_all_at(&max_severity, CONTROL_MAX_SEVERITY_OFFSET as u64)?;
    // Last: the process reads the rest when the generation has changed. Never 0.
    let generation = generation.wrapping_add(1).max(1).to_le_bytes();
    control.write_all_at(&generation, CONTROL_GENERATION_OFFSET as u64)?;
    Ok(wake_filter_watchers(control)?)
}
