//! Many at once, and some of them up to no good.

mod hostile;
mod many;
