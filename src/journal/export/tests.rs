use proptest::prelude::*;
use pulldown_cmark::{Event as Piece, Options, Parser, Tag};

use super::*;

#[test]
fn placeholder() {}
