//! A table in the form of generated code, for tests.

use super::{Malformed, Position, Referred, Union, Writer};

/// `union Either { Node }`
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Either {
    Node(Box<Node>),
}

impl Union for Either {
    fn tag(&self) -> u8 {
        1
    }

    fn write(&self, out: &mut Writer) -> usize {
        let Either::Node(node) = self;
        Referred::write(node, out)
    }

    fn read(tag: u8, at: Position<'_>) -> Result<Option<Either>, Malformed> {
        if tag == 1 { Referred::read(at).map(|node| Some(Either::Node(node))) } else { Ok(None) }
    }
}

/// `table Node { number: short = 7; name: string; next: Node; children: [Node]; bytes: [ubyte]; wide: double;
/// some: [Either]; }`
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Node {
    pub(crate) number: i16,
    pub(crate) name: Option<String>,
    pub(crate) next: Option<Box<Node>>,
    pub(crate) children: Vec<Node>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) wide: f64,
    pub(crate) some: Vec<Either>,
}

impl Referred for Node {
    fn write(&self, out: &mut Writer) -> usize {
        out.begin();
        out.inline(5, self.wide, 0.0);
        let name = out.refer(1, self.name.is_some());
        let next = out.refer(2, self.next.is_some());
        let children = out.refer(3, !self.children.is_empty());
        let bytes = out.refer(4, !self.bytes.is_empty());
        let tags = out.refer(6, !self.some.is_empty());
        let some = out.refer(7, !self.some.is_empty());
        out.inline(0, self.number, 7);
        let at = out.end();
        out.point(name, self.name.as_ref());
        out.point(next, self.next.as_ref());
        out.point_to_all(children, &self.children);
        out.point_to_inlines(bytes, &self.bytes);
        out.point_to_unions(tags, some, &self.some);
        at
    }

    fn read(at: Position<'_>) -> Result<Node, Malformed> {
        let table = at.table::<Node>()?;
        let within = |name| move |error: Malformed| error.in_field(name);
        Ok(Node {
            number: table.inline(0).map_err(within("number"))?.unwrap_or(7),
            name: table.referred(1).map_err(within("name"))?,
            next: table.referred(2).map_err(within("next"))?,
            children: table.all(3).map_err(within("children"))?.unwrap_or_default(),
            bytes: table.inlines(4).map_err(within("bytes"))?.unwrap_or_default(),
            wide: table.inline(5).map_err(within("wide"))?.unwrap_or_default(),
            some: table.unions(7).map_err(within("some"))?.unwrap_or_default(),
        })
    }
}
