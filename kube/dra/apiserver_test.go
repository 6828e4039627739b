package dra_test

// This file simulates the API server. It has one node, the claims that a test sets, and the ResourceSlices that the driver writes.
// node_test.go starts the driver with it.

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

// nodeName is the name of the only node in the simulated cluster.
const nodeName = "worker"

// apiServer is a simulated API server that answers the requests of the driver.
type apiServer struct {
	url string

	mu     sync.Mutex
	count  int                                  // number of writes; it makes names and resource versions
	claims map[string]*resourcev1.ResourceClaim // claims by NAMESPACE/NAME
	slices map[string]*resourcev1.ResourceSlice // slices by their names
}

func newAPIServer(t *testing.T) *apiServer {
	a := &apiServer{claims: map[string]*resourcev1.ResourceClaim{}, slices: map[string]*resourcev1.ResourceSlice{}}
	const group = "/apis/resource.k8s.io/v1/"
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/nodes/"+nodeName, func(w http.ResponseWriter, _ *http.Request) {
		reply(w, &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "node-uid"}})
	})
	mux.HandleFunc("GET "+group+"namespaces/{namespace}/resourceclaims/{name}", a.getClaim)
	mux.HandleFunc("GET "+group+"resourceslices", a.listSlices)
	mux.HandleFunc("POST "+group+"resourceslices", a.putSlice)
	mux.HandleFunc("PUT "+group+"resourceslices/{name}", a.putSlice)
	mux.HandleFunc("DELETE "+group+"resourceslices/{name}", a.deleteSlice)
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	a.url = server.URL
	return a
}

func reply(w http.ResponseWriter, object any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(object)
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: int32(code), Reason: reason, Message: string(reason)})
}

func (a *apiServer) getClaim(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if claim := a.claims[r.PathValue("namespace")+"/"+r.PathValue("name")]; claim != nil {
		reply(w, claim)
	} else {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	}
}

// listSlices answers lists and watches of the slices. A watch gets no events, because the driver is the only writer. A watch that asks for
// the present slices first is refused, so that the driver sends a list and then a watch.
func (a *apiServer) listSlices(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("sendInitialEvents") != "" {
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
		return
	}
	if r.URL.Query().Get("watch") != "" {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	list := resourcev1.ResourceSliceList{TypeMeta: metav1.TypeMeta{APIVersion: resourcev1.SchemeGroupVersion.String(), Kind: "ResourceSliceList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	list.Items = append(list.Items, a.published()...)
	reply(w, &list)
}

func (a *apiServer) putSlice(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	slice, is := object.(*resourcev1.ResourceSlice)
	if err != nil || !is {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
		return
	}
	slice.APIVersion, slice.Kind = resourcev1.SchemeGroupVersion.String(), "ResourceSlice"
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count++
	if slice.Name == "" {
		slice.Name = fmt.Sprint(slice.GenerateName, a.count)
		slice.UID = types.UID(slice.Name)
	}
	slice.ResourceVersion = fmt.Sprint(a.count)
	a.slices[slice.Name] = slice
	reply(w, slice)
}

func (a *apiServer) deleteSlice(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.slices, r.PathValue("name"))
	reply(w, &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Success"})
}

// published returns the slices that the driver has written and not deleted, in the order of their names.
func (a *apiServer) published() (all []resourcev1.ResourceSlice) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.slices {
		all = append(all, *s)
	}
	slices.SortFunc(all, func(x, y resourcev1.ResourceSlice) int { return strings.Compare(x.Name, y.Name) })
	return all
}

// devices returns the devices in all published slices.
func (a *apiServer) devices() (all []resourcev1.Device) {
	for _, s := range a.published() {
		all = append(all, s.Spec.Devices...)
	}
	return all
}

// set adds a claim, or replaces it.
func (a *apiServer) set(claim *resourcev1.ResourceClaim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.claims[claim.Namespace+"/"+claim.Name] = claim
}

// kubeconfig writes a kubeconfig file for the server, and returns its path.
func (a *apiServer) kubeconfig(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"c","context":{"cluster":"c","user":""}}]}`, a.url)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
