use bytes::BufMut;

use crate::{DecodeError, Field};

/// A message that may have several forms, and a size that depends on its content.
///
/// `Form` tells the forms apart: the version of a protocol, or `()` if there is one form only. A
/// [`Field`] is a message that is the same in every form.
pub trait Message<Form>: Sized {
    /// Size of the largest form, in bytes.
    const MAX_SIZE: usize;

    /// Decodes the message from `from`, which begins with it.
    ///
    /// # Errors
    /// If the bytes do not have the given form.
    fn decode(form: Form, from: &[u8]) -> Result<Self, DecodeError>;

    /// Encodes the message. Values that the form has no field for are left out.
    fn encode(&self, form: Form, to: &mut impl BufMut);
}

impl<T: Field, Form> Message<Form> for T {
    const MAX_SIZE: usize = T::SIZE;

    fn decode(_form: Form, mut from: &[u8]) -> Result<Self, DecodeError> {
        Self::read(&mut from)
    }

    fn encode(&self, _form: Form, to: &mut impl BufMut) {
        self.write(to);
    }
}
