//! Runs functions. All values lie on the heap's stack of roots: a function's frame, and what is being computed above it.

use nthbyte_nursery::{Handle, Heap, Items, Observer, Settings, Type, TypeId};

use crate::reader::{Expression, Form, Function, Operation};

const NODE: TypeId = TypeId(0);
const VECTOR: TypeId = TypeId(1);

/// What the machine allocates. A node is two references and two numbers that are never used, as in GCBench.
pub fn types() -> Vec<Type> {
    vec![
        Type {
            name: "node".into(),
            slots: 2,
            bytes: 8,
            items: Items::None,
        },
        Type {
            name: "vector".into(),
            slots: 0,
            bytes: 0,
            items: Items::Slots,
        },
    ]
}

/// An observer that knows where the program is.
pub trait Stack: Observer {
    /// A function is called.
    fn enter(&mut self, function: usize);
    /// The innermost function is at this line.
    fn at(&mut self, line: u32);
    /// The innermost function returns.
    fn leave(&mut self);
}

pub struct Machine<O: Stack> {
    pub heap: Heap<O>,
    functions: std::rc::Rc<[Function]>,
}

impl<O: Stack> Machine<O> {
    pub fn new(functions: Vec<Function>, settings: Settings, observer: O) -> Self {
        Self {
            heap: Heap::new(settings, types(), observer),
            functions: functions.into(),
        }
    }

    /// Calls the last function with one number. The result is what it returns, if that is a number.
    pub fn main(&mut self, argument: i64) -> Option<i64> {
        let base = self.heap.push_integer(argument);
        self.call(self.functions.len() - 1, base);
        let result = self.heap.integer(base);
        self.heap.truncate(base);
        result
    }

    /// Calls a function whose arguments lie on the stack from `base` on, and leaves its result there.
    fn call(&mut self, number: usize, base: Handle) {
        let functions = self.functions.clone();
        let function = &functions[number];
        for _ in function.parameters..function.places {
            self.heap.push_nothing();
        }
        self.heap.observer_mut().enter(number);
        let result = self.all(&function.body, base);
        self.heap.observer_mut().leave();
        self.heap.copy(result, base);
        self.heap.truncate(base.above(1));
    }

    /// Evaluates expressions one after the other, and pushes the last value.
    fn all(&mut self, expressions: &[Expression], base: Handle) -> Handle {
        let result = self.heap.push_nothing();
        for expression in expressions {
            self.heap.truncate(result);
            self.evaluate(expression, base);
        }
        result
    }

    /// Evaluates an expression in the frame at `base`, and pushes its value.
    fn evaluate(&mut self, expression: &Expression, base: Handle) -> Handle {
        match &expression.form {
            Form::Nil => self.heap.push_nothing(),
            Form::Integer(value) => self.heap.push_integer(*value),
            Form::Place(place) => self.heap.push_copy(base.above(*place)),
            Form::Set(place, value) => {
                let value = self.evaluate(value, base);
                self.heap.copy(value, base.above(*place));
                value
            }
            Form::If(parts) => {
                let [condition, yes, no] = &**parts;
                if self.holds(condition, base) {
                    self.evaluate(yes, base)
                } else {
                    self.evaluate(no, base)
                }
            }
            Form::While(condition, body) => {
                while self.holds(condition, base) {
                    let value = self.all(body, base);
                    self.heap.truncate(value);
                }
                self.heap.push_nothing()
            }
            Form::Do(body) => self.all(body, base),
            Form::Call(function, arguments) => {
                let first = self.heap.depth();
                for argument in arguments {
                    self.evaluate(argument, base);
                }
                self.heap.observer_mut().at(expression.line);
                self.call_with_room(*function, first, arguments.len());
                first
            }
            Form::Operation(operation, operands) => {
                let first = self.heap.depth();
                for operand in operands {
                    self.evaluate(operand, base);
                }
                self.heap.observer_mut().at(expression.line);
                self.operate(*operation, first);
                self.heap.truncate(first.above(1));
                first
            }
        }
    }

    fn call_with_room(&mut self, function: usize, first: Handle, arguments: usize) {
        if arguments == 0 {
            // The result needs a place.
            self.heap.push_nothing();
        }
        self.call(function, first);
    }

    fn holds(&mut self, condition: &Expression, base: Handle) -> bool {
        let value = self.evaluate(condition, base);
        let holds = !self.heap.is_nothing(value);
        self.heap.truncate(value);
        holds
    }

    /// Replaces the first of the operands, which lie on the stack, by the result.
    fn operate(&mut self, operation: Operation, first: Handle) {
        let heap = &mut self.heap;
        let number = |place| heap.integer(first.above(place)).expect("a number");
        let index = |place| usize::try_from(number(place)).expect("an index is not negative");
        match operation {
            Operation::Add => heap.set_integer(first, number(0) + number(1)),
            Operation::Subtract => heap.set_integer(first, number(0) - number(1)),
            Operation::Multiply => heap.set_integer(first, number(0) * number(1)),
            Operation::Quotient => heap.set_integer(first, number(0) / number(1)),
            Operation::Less if number(0) < number(1) => heap.set_integer(first, 1),
            Operation::Less => heap.set_nothing(first),
            Operation::Node => {
                let node = heap.allocate(NODE);
                heap.store(node, 0, first);
                heap.store(node, 1, first.above(1));
                heap.copy(node, first);
            }
            Operation::Left => heap.load(first, 0, first),
            Operation::Right => heap.load(first, 1, first),
            Operation::SetLeft => heap.store(first, 0, first.above(1)),
            Operation::SetRight => heap.store(first, 1, first.above(1)),
            Operation::Vector => {
                let length = u32::try_from(index(0)).expect("a vector has less than 2^32 items");
                let vector = heap.allocate_array(VECTOR, length);
                heap.copy(vector, first);
            }
            Operation::VectorRef => heap.load(first, index(1), first),
            Operation::VectorSet => {
                let index = index(1);
                heap.store(first, index, first.above(2));
            }
        }
    }
}
