//! Evaluates the attributes of integers, floating point numbers and strings.

use super::attribute_syntax::mapped_clock;
use super::attributes::Attributes;
use super::syntax::{Attribute, Value};
use crate::error::MetadataError;
use crate::metadata::warning::{Deviation, Warnings};
use crate::model::{Base, BitField, ByteOrder, Encoding, FieldClass, Integer, Position, Reference};

pub(super) fn integer(
    attributes: &[Attribute],
    at: Position,
    native: ByteOrder,
    warnings: &mut Warnings,
) -> Result<Integer, MetadataError> {
    let mut attributes = Attributes::new("integer", at, attributes)?;
    let size = attributes.require_attribute("size")?;
    // CTF allows more than 64 bits, but no known reader does.
    let bits = u8::try_from(size.number()?)
        .ok()
        .filter(|bits| (1..=64).contains(bits))
        .ok_or_else(|| size.expects("1 to 64 bits"))?;
    // The default of CTF 1.8.3 (section 4.1.2): whole bytes begin at a byte.
    let natural = if bits.is_multiple_of(8) { 8 } else { 1 };
    let signed = attributes.read_attribute("signed", Attribute::boolean)?;
    let order = attributes.read_attribute("byte_order", |order| order.byte_order(Some(native)))?;
    let alignment = attributes.read_attribute("align", Attribute::alignment)?;
    let text = attributes.read_attribute("encoding", is_text)?;
    let mut integer = Integer {
        signed: signed.unwrap_or(false),
        base: attributes.read_attribute("base", base)?.unwrap_or_default(),
        text: text.unwrap_or(false),
        ..Integer::unsigned(bits, alignment.unwrap_or(natural), order.unwrap_or(native))
    };
    if let Some(map) = attributes.take_attribute("map") {
        integer.clock = match &map.value {
            Value::Path(path) => mapped_clock(path).map(|clock| clock.text),
            _ => None,
        };
        if integer.clock.is_none() {
            return Err(map.expects("`clock.NAME.value`"));
        }
    }
    attributes.finish(warnings);
    Ok(integer)
}

pub(super) fn float(
    attributes: &[Attribute],
    at: Position,
    native: ByteOrder,
    warnings: &mut Warnings,
) -> Result<FieldClass<Reference>, MetadataError> {
    let mut attributes = Attributes::new("floating_point", at, attributes)?;
    let exponent = attributes.require_attribute("exp_dig")?;
    let mantissa = attributes.require_attribute("mant_dig")?;
    let bits = match (exponent.number()?, mantissa.number()?) {
        (8, 24) => 32,
        (11, 53) => 64,
        (8, _) => return Err(mantissa.expects("24 where `exp_dig` is 8")),
        (11, _) => return Err(mantissa.expects("53 where `exp_dig` is 11")),
        _ => return Err(exponent.expects("8 or 11")),
    };
    let order = attributes.read_attribute("byte_order", |order| order.byte_order(Some(native)))?;
    let alignment = attributes.read_attribute("align", Attribute::alignment)?;
    let float = BitField {
        bits,
        order: order.unwrap_or(native),
        // Unlike that of an integer; LTTng always gives the alignment.
        alignment: alignment.unwrap_or(1),
        slot: None,
    };
    attributes.finish(warnings);
    Ok(FieldClass::Float(float))
}

pub(super) fn string(
    attributes: &[Attribute],
    at: Position,
    warnings: &mut Warnings,
) -> Result<FieldClass<Reference>, MetadataError> {
    let mut attributes = Attributes::new("string", at, attributes)?;
    if let Some(encoding) = attributes.take_attribute("encoding")
        && !is_text(encoding)?
    {
        let what = "`encoding` of a `string` is `none`; it is read as UTF-8";
        warnings.add_deviation(Deviation::StringEncoding, encoding.at, what);
    }
    attributes.finish(warnings);
    Ok(FieldClass::String(Encoding::Utf8))
}

fn base(given: &Attribute) -> Result<Base, MetadataError> {
    let base = match &given.value {
        Value::Number(2) => Some(Base::Binary),
        Value::Number(8) => Some(Base::Octal),
        Value::Number(10) => Some(Base::Decimal),
        Value::Number(16) => Some(Base::Hexadecimal),
        Value::Text(_) | Value::Path(_) => match &*given.word()? {
            "b" | "bin" | "binary" => Some(Base::Binary),
            "o" | "oct" | "octal" => Some(Base::Octal),
            "d" | "dec" | "decimal" | "i" | "u" => Some(Base::Decimal),
            "x" | "X" | "hex" | "hexadecimal" | "p" => Some(Base::Hexadecimal),
            _ => None,
        },
        _ => None,
    };
    base.ok_or_else(|| given.expects("2, 8, 10 or 16"))
}

/// Whether the encoding makes bytes a text. A reader can treat ASCII as UTF-8.
fn is_text(encoding: &Attribute) -> Result<bool, MetadataError> {
    match &*encoding.word()? {
        "UTF8" | "utf8" | "UTF-8" | "utf-8" | "ASCII" | "ascii" => Ok(true),
        "none" => Ok(false),
        _ => Err(encoding.expects("`UTF8` or `ASCII`")),
    }
}
