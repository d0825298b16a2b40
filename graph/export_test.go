package graph

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/graph/formats/dot"
	"gonum.org/v1/gonum/graph/formats/dot/ast"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/op"
)

var update = flag.Bool("update", false, "write testdata anew")

// exported is the graph of a layer around a doubling, with its gradient and a
// statement.
func exported(t testing.TB) *gorgonia.ExprGraph {
	g := gorgonia.NewGraph()
	x := gorgonia.NewTensor(g, tensor.Float32, 3, gorgonia.WithName(`x "quoted" \ and
lines`), gorgonia.WithShape(4, 2, 3))
	l, err := NewLayer(g, "layer", Config{MHC: mhc.DeepSeekV4.Config(2), Channels: 3, Rand: rand.NewPCG(1, 1)})
	require.NoError(t, err)
	h, err := l.Apply(x, func(h *gorgonia.Node) (*gorgonia.Node, error) {
		return gorgonia.Mul(h, gorgonia.NewConstant(float32(2)))
	})
	require.NoError(t, err)
	loss := gorgonia.Must(gorgonia.Sum(h))
	_, err = gorgonia.Grad(loss, l.Learnables()...)
	require.NoError(t, err)
	var v gorgonia.Value
	gorgonia.Read(loss, &v)
	return g
}

// What is written is what testdata holds: go test -run Golden -update writes it.
func TestExportGolden(t *testing.T) {
	g := gorgonia.NewGraph()
	x := gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(4, 3))
	h, err := op.Streams(x, 2)
	require.NoError(t, err)
	sum := gorgonia.Must(gorgonia.Sum(h))
	var v gorgonia.Value
	gorgonia.Read(gorgonia.Must(gorgonia.Mul(sum, gorgonia.NewConstant(0.5))), &v)
	for name, write := range map[string]func(io.Writer, *gorgonia.ExprGraph) error{"streams.dot": WriteDOT, "streams.json": WriteJSON} {
		path := filepath.Join("testdata", name)
		var got bytes.Buffer
		require.NoError(t, write(&got, g))
		if *update {
			require.NoError(t, os.WriteFile(path, got.Bytes(), 0o644))
		}
		assert.Equal(t, string(read(t, path)), got.String(), name)
	}
}

// The same program gives the same text.
func TestExportIsDeterministic(t *testing.T) {
	for _, write := range []func(io.Writer, *gorgonia.ExprGraph) error{WriteDOT, WriteJSON} {
		var first, second bytes.Buffer
		require.NoError(t, write(&first, exported(t)))
		require.NoError(t, write(&second, exported(t)))
		assert.Equal(t, first.String(), second.String())
	}
}

func TestDOTParses(t *testing.T) {
	g := exported(t)
	var b bytes.Buffer
	require.NoError(t, WriteDOT(&b, g))
	file, err := dot.ParseBytes(b.Bytes())
	require.NoError(t, err)
	require.Len(t, file.Graphs, 1)
	var nodes, edges int
	var text strings.Builder
	for _, s := range file.Graphs[0].Stmts {
		switch s := s.(type) {
		case *ast.NodeStmt:
			nodes++
			for _, a := range s.Attrs {
				if a.Key == "label" {
					text.WriteString(a.Val)
				}
			}
		case *ast.EdgeStmt:
			edges++
		}
	}
	e, err := NewExport(g)
	require.NoError(t, err)
	assert.Equal(t, len(g.AllNodes()), nodes)
	assert.Equal(t, len(e.Edges), edges)
	for _, want := range []string{`x \"quoted\" \\ and\nlines\nfloat32 [4 2 3]`, `layer.phi\nfloat32 [8 6]`,
		`mhc.Coeffs\n`, `\npre_eps = 1e-06\n`, `\nphi = MK\n`, `const 2`, `apply = transposed`} {
		assert.Contains(t, text.String(), want)
	}
}

func TestJSONDescribesTheGraph(t *testing.T) {
	g := exported(t)
	var b bytes.Buffer
	require.NoError(t, WriteJSON(&b, g))
	var e Export
	require.NoError(t, json.Unmarshal(b.Bytes(), &e))
	require.Len(t, e.Nodes, len(g.AllNodes()))
	kinds := make(map[string]int)
	byID := make(map[int64]ExportNode)
	for i, n := range e.Nodes {
		kinds[n.Kind]++
		byID[n.ID] = n
		if i > 0 {
			assert.Less(t, e.Nodes[i-1].ID, n.ID)
		}
	}
	assert.Equal(t, 4, kinds["input"])
	assert.Equal(t, 1, kinds["statement"])
	assert.Equal(t, 2, kinds["constant"], "the factor, and the gradient of the cost by itself")
	gradients := make(map[string]ExportNode)
	for _, n := range e.Nodes {
		for _, of := range n.GradientOf {
			gradients[byID[of].Name] = n
		}
	}
	assert.Equal(t, []int{8, 6}, gradients["layer.phi"].Shape)
	assert.Equal(t, "mhc.Coeffs.backward.dphi", gradients["layer.phi"].Op)
	operands := make(map[int64][]string)
	for _, edge := range e.Edges {
		require.Len(t, operands[edge.To], edge.Operand, "operands come in order")
		operands[edge.To] = append(operands[edge.To], byID[edge.From].Name)
	}
	for id, names := range operands {
		if byID[id].Op == "mhc.Coeffs" {
			assert.Equal(t, []string{"x \"quoted\" \\ and\nlines", "layer.phi", "layer.b", "layer.alpha"}, names)
			assert.Contains(t, byID[id].Settings, ExportSetting{"post_mult", "2"})
		}
	}
}

func TestExportRefuses(t *testing.T) {
	_, err := NewExport(nil)
	assert.EqualError(t, err, "graph: the graph is nil")
	assert.EqualError(t, WriteDOT(&bytes.Buffer{}, nil), "graph: the graph is nil")
	assert.EqualError(t, WriteJSON(&bytes.Buffer{}, nil), "graph: the graph is nil")
	assert.ErrorContains(t, WriteDOT(brokenWriter{}, exported(t)), "broken pipe")
	assert.ErrorContains(t, WriteJSON(brokenWriter{}, exported(t)), "broken pipe")
	e, err := NewExport(gorgonia.NewGraph())
	require.NoError(t, err)
	assert.Equal(t, &Export{Nodes: []ExportNode{}, Edges: []ExportEdge{}}, e)
}
