package graph

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"gorgonia.org/gorgonia"

	"github.com/mhc-go/mhc/op/fused"
)

// Export is an expression graph as data: what [WriteJSON] writes.
type Export struct {
	// Nodes are the graph's nodes by rising ID.
	Nodes []ExportNode `json:"nodes"`
	// Edges lead from a node to those that compute with it.
	Edges []ExportEdge `json:"edges"`
}

// ExportNode is one node.
type ExportNode struct {
	// ID is the node's ID in its graph.
	ID int64 `json:"id"`
	// Kind is input, constant, op or statement (as Read adds).
	Kind string `json:"kind"`
	// Name is an input's name; Op is the operator of any other node.
	Name string `json:"name,omitempty"`
	Op   string `json:"op,omitempty"`
	// Shape is [] for a scalar. It is missing, as Dtype is, for a statement and for
	// an op whose results are nodes of their own.
	Shape []int  `json:"shape,omitzero"`
	Dtype string `json:"dtype,omitempty"`
	// Settings are those of this module's ops. Gorgonia's have theirs in Op.
	Settings []ExportSetting `json:"settings,omitempty"`
	// GradientOf are the nodes that this one is the gradient of the cost by.
	GradientOf []int64 `json:"gradient_of,omitempty"`
}

// ExportSetting is a parameter of an operator, as text.
type ExportSetting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// ExportEdge says that node To computes with node From, as its operand Operand.
type ExportEdge struct {
	From    int64 `json:"from"`
	To      int64 `json:"to"`
	Operand int   `json:"operand"`
}

// NewExport describes g as it stands. The same program gives the same Export.
func NewExport(g *gorgonia.ExprGraph) (*Export, error) {
	if g == nil {
		return nil, fmt.Errorf("graph: the graph is nil")
	}
	// AllNodes is the graph's own slice.
	all := slices.Clone(g.AllNodes())
	slices.SortFunc(all, func(a, b *gorgonia.Node) int { return int(a.ID() - b.ID()) })
	e := &Export{Nodes: make([]ExportNode, 0, len(all)), Edges: []ExportEdge{}}
	for _, n := range all {
		e.Nodes = append(e.Nodes, exportNode(n))
		operands := g.From(n.ID())
		for i := 0; operands.Next(); i++ {
			e.Edges = append(e.Edges, ExportEdge{From: operands.Node().ID(), To: n.ID(), Operand: i})
		}
	}
	return e, nil
}

func exportNode(n *gorgonia.Node) ExportNode {
	e := ExportNode{ID: n.ID(), Kind: "op"}
	switch o := n.Op().(type) {
	case nil:
		e.Kind, e.Name = "input", n.Name()
	case fused.Described:
		e.Op, _, _ = strings.Cut(o.String(), "{")
		for _, s := range o.Settings() {
			e.Settings = append(e.Settings, ExportSetting{Name: s.Name, Value: fmt.Sprint(s.Value)})
		}
	case gorgonia.Valuer:
		e.Kind, e.Op = "constant", o.(gorgonia.Op).String()
	default:
		e.Op = o.String()
	}
	if n.Type() == nil {
		// A statement has no type, and its name holds an address.
		e.Kind = "statement"
		return e
	}
	if fused.IsBundle(n) {
		return e
	}
	e.Shape, e.Dtype = append([]int{}, n.Shape()...), n.Dtype().String()
	for _, of := range n.DerivOf() {
		e.GradientOf = append(e.GradientOf, of.ID())
	}
	slices.Sort(e.GradientOf)
	return e
}

// WriteJSON writes g as an [Export] in JSON, a node or an edge on a line.
func WriteJSON(w io.Writer, g *gorgonia.ExprGraph) error {
	e, err := NewExport(g)
	if err != nil {
		return err
	}
	nodes, err := jsonLines(e.Nodes)
	if err != nil {
		return err
	}
	edges, err := jsonLines(e.Edges)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "{\n\"nodes\": [%s],\n\"edges\": [%s]\n}\n", nodes, edges)
	return err
}

// jsonLines is the elements of a JSON array, one on a line.
func jsonLines[T any](items []T) (string, error) {
	lines := make([]string, len(items))
	for i, item := range items {
		text, err := json.Marshal(item)
		if err != nil {
			return "", fmt.Errorf("graph: %w", err)
		}
		lines[i] = "\n" + string(text)
	}
	return strings.Join(lines, ","), nil
}

// WriteDOT writes g in the language of Graphviz, with the names, shapes, dtypes
// and op settings readable in its nodes. Gradients are drawn dashed.
func WriteDOT(w io.Writer, g *gorgonia.ExprGraph) error {
	e, err := NewExport(g)
	if err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString("digraph {\n\tnode [shape=box, style=filled, fillcolor=white];\n")
	for _, n := range e.Nodes {
		fmt.Fprintf(&b, "\t%d [label=%s, %s];\n", n.ID, quote(n.label()), n.style())
	}
	for _, e := range e.Edges {
		fmt.Fprintf(&b, "\t%d -> %d;\n", e.From, e.To)
	}
	b.WriteString("}\n")
	_, err = io.WriteString(w, b.String())
	return err
}

// label is the text in a node's box.
func (n ExportNode) label() string {
	lines := []string{n.Name + n.Op}
	if n.Dtype != "" {
		lines = append(lines, fmt.Sprintf("%s %v", n.Dtype, n.Shape))
	}
	for _, s := range n.Settings {
		lines = append(lines, s.Name+" = "+s.Value)
	}
	return strings.Join(lines, "\n")
}

func (n ExportNode) style() string {
	style := map[string]string{
		"input":     `fillcolor="lightblue"`,
		"constant":  `fillcolor="lightgrey"`,
		"op":        `fillcolor="white"`,
		"statement": `fillcolor="white", shape=plaintext`,
	}[n.Kind]
	if n.GradientOf != nil {
		style += `, style="filled,dashed"`
	}
	return style
}

// quote is s as a quoted string of DOT, where only the quote and the backslash
// are special.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(strings.ToValidUTF8(s, "?")) + `"`
}
