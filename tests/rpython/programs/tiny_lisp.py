"""An interpreter for a language of lists, which is translated with RPython: ``./tiny_lisp FILE``.

Integers, pairs, vectors, and functions: ``(define (NAME ARGUMENT ...) BODY)``, and an expression after all of them.
RPython: translated with Python 2.7.
"""

import os


class Value(object):
    pass


class Integer(Value):
    def __init__(self, number):
        self.number = number


class Pair(Value):
    def __init__(self, left, right):
        self.left = left
        self.right = right


class Vector(Value):
    def __init__(self, items):
        self.items = items


class Environment(object):
    """The arguments of one call."""

    def __init__(self, values):
        self.values = values


class Node(object):
    def eval(self, env):
        raise NotImplementedError


class Constant(Node):
    def __init__(self, value):
        self.value = value

    def eval(self, env):
        return self.value


class Argument(Node):
    def __init__(self, place):
        self.place = place

    def eval(self, env):
        return env.values[self.place]


class If(Node):
    def __init__(self, condition, then, other):
        self.condition = condition
        self.then = then
        self.other = other

    def eval(self, env):
        if number(self.condition.eval(env)) != 0:
            return self.then.eval(env)
        return self.other.eval(env)


class Operation(Node):
    def __init__(self, name, operands):
        self.name = name
        self.operands = operands

    def eval(self, env):
        name = self.name
        left = self.operands[0].eval(env)
        if name == "left":
            assert isinstance(left, Pair)
            return left.left
        if name == "right":
            assert isinstance(left, Pair)
            return left.right
        if name == "print":
            os.write(1, str(number(left)) + "\n")
            return left
        if name == "vector":
            return Vector([Integer(0)] * number(left))
        if name == "is-pair":
            return Integer(1 if isinstance(left, Pair) else 0)
        right = self.operands[1].eval(env)
        if name == "pair":
            return Pair(left, right)
        if name == "then":
            return right
        if name == "+":
            return Integer(number(left) + number(right))
        if name == "-":
            return Integer(number(left) - number(right))
        if name == "*":
            return Integer(number(left) * number(right))
        if name == "<":
            return Integer(1 if number(left) < number(right) else 0)
        raise KeyError(name)


class Call(Node):
    def __init__(self, functions, name, operands):
        self.functions = functions
        self.name = name
        self.operands = operands

    def eval(self, env):
        return self.functions[self.name].eval(Environment([operand.eval(env) for operand in self.operands]))


OPERATIONS = ["left", "right", "print", "vector", "is-pair", "pair", "then", "+", "-", "*", "<"]


def number(value):
    assert isinstance(value, Integer)
    return value.number


def words(text):
    """The words of a text that ends with a line end."""
    found = []
    start = -1
    for at in range(len(text)):
        sign = text[at]
        if sign == "(" or sign == ")" or sign == " " or sign == "\n":
            if start >= 0:
                found.append(text[start:at])
                start = -1
            if sign == "(" or sign == ")":
                found.append(sign)
        elif start < 0:
            start = at
    return found


class Parser(object):
    def __init__(self, text, functions):
        self.words = words(text)
        self.at = 0
        self.functions = functions

    def next(self):
        word = self.words[self.at]
        self.at += 1
        return word

    def program(self):
        """Reads definitions, and returns the expression after them."""
        while self.words[self.at + 1] == "define":
            self.at += 3
            name = self.next()
            arguments = []
            while self.words[self.at] != ")":
                arguments.append(self.next())
            self.at += 1
            self.functions[name] = self.expression(arguments)
            self.at += 1
        return self.expression([])

    def expression(self, arguments):
        word = self.next()
        if word != "(":
            for place in range(len(arguments)):
                if arguments[place] == word:
                    return Argument(place)
            return Constant(Integer(int(word)))
        name = self.next()
        operands = []
        while self.words[self.at] != ")":
            operands.append(self.expression(arguments))
        self.at += 1
        if name == "if":
            return If(operands[0], operands[1], operands[2])
        if name in OPERATIONS:
            return Operation(name, operands[:])
        return Call(self.functions, name, operands[:])


def main(argv):
    file = os.open(argv[1], os.O_RDONLY, 0o777)
    text = ""
    while True:
        piece = os.read(file, 65536)
        if piece == "":
            break
        text += piece
    os.close(file)
    Parser(text, {}).program().eval(Environment([]))
    return 0


def target(*args):
    return main
