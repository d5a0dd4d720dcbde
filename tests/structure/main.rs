//! Rules about the source tree itself: layers of modules, sizes, names of files in pages, dependencies.

mod dependencies;
mod layers;
mod pages;
mod publish;
mod sizes;
mod source;
mod words;
